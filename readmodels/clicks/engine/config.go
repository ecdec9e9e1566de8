package engine

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

// writeConfig writes the engine's configuration and returns its path. Giving one also keeps the library from reading
// a config.xml of the working directory or of the user's home.
func writeConfig(o Options) (string, error) {
	dir := filepath.Join(o.DataDir, "config")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating engine configuration: %w", err)
	}
	users := filepath.Join(dir, "users.xml")
	data := struct {
		Users                                string
		Memory, QueryMemory, MarkCache       int64
		Threads, BackgroundThreads, FreePool int
	}{users, o.MemoryLimit, o.MemoryLimit / 4 * 3, o.MemoryLimit / 16, o.Threads, max(4, o.Threads), 2}
	for path, text := range map[string]string{users: usersXML, filepath.Join(dir, "config.xml"): configXML} {
		var b bytes.Buffer
		t := template.Must(template.New("").Funcs(template.FuncMap{"xml": escapeXML}).Parse(text))
		if err := t.Execute(&b, data); err != nil {
			return "", fmt.Errorf("writing engine configuration: %w", err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			return "", fmt.Errorf("writing engine configuration: %w", err)
		}
	}
	return filepath.Join(dir, "config.xml"), nil
}

func escapeXML(s string) (string, error) {
	var b bytes.Buffer
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}

// configXML: caches and background pools for a machine that has other work to do. The merge_tree entries about the pool are
// the defaults scaled to the smaller one, without which ClickHouse refuses it. Merges take ten parts or more: with the default
// each small part is written again with every few that follow it. What keeps the number of parts small goes on working, so a
// partition ends with up to nine small parts more. Statistics of columns are for plans of joins, which nobody asks for here;
// they cost time in every insert and merge. The library removes merged parts without the eight minutes that a server leaves
// the disk to write what replaces them, so that has to be on the disk before.
const configXML = `<clickhouse>
  <logger><level>fatal</level></logger>
  <max_server_memory_usage>{{.Memory}}</max_server_memory_usage>
  <mark_cache_size>{{.MarkCache}}</mark_cache_size>
  <background_pool_size>{{.BackgroundThreads}}</background_pool_size>
  <merge_tree>
    <min_parts_to_merge_at_once>10</min_parts_to_merge_at_once>
    <auto_statistics_types></auto_statistics_types>
    <min_rows_to_fsync_after_merge>1</min_rows_to_fsync_after_merge>
    <number_of_free_entries_in_pool_to_lower_max_size_of_merge>{{.FreePool}}</number_of_free_entries_in_pool_to_lower_max_size_of_merge>
    <number_of_free_entries_in_pool_to_execute_mutation>{{.FreePool}}</number_of_free_entries_in_pool_to_execute_mutation>
    <number_of_free_entries_in_pool_to_execute_optimize_entire_partition>{{.FreePool}}</number_of_free_entries_in_pool_to_execute_optimize_entire_partition>
  </merge_tree>
  <users_config>{{xml .Users}}</users_config>
</clickhouse>
`

// usersXML: async_insert is on by default since ClickHouse 26.3; here an answered INSERT is in its table.
// implicit_select would make a query of any text. Without the grants on sources, SQL cannot open files or connections.
const usersXML = `<clickhouse>
  <profiles><default>
    <max_threads>{{.Threads}}</max_threads>
    <max_memory_usage>{{.QueryMemory}}</max_memory_usage>
    <async_insert>0</async_insert>
    <implicit_select>0</implicit_select>
    <allow_introspection_functions>0</allow_introspection_functions>
  </default></profiles>
  <users><default>
    <password></password>
    <networks><ip>::/0</ip></networks>
    <profile>default</profile>
    <quota>default</quota>
    <grants>
      <query>GRANT ALL ON *.*</query>
      <query>REVOKE SOURCES ON *.*</query>
      <query>REVOKE BACKUP ON *.*</query>
      <query>REVOKE SYSTEM SHUTDOWN ON *.*</query>
    </grants>
  </default></users>
  <quotas><default></default></quotas>
</clickhouse>
`
