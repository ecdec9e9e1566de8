package app_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// sourcePackage is one folder of Go files, all build tags together.
type sourcePackage struct {
	folder string // slash-separated, from the module's root; "." is the root
	files  []sourceFile
}

type sourceFile struct {
	*ast.File
	isTest bool
}

func parseTree(root string) ([]sourcePackage, error) {
	sources := map[string]string{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() && name != root && (strings.HasPrefix(base, ".") || slices.Contains([]string{"bin", "data", "testdata"}, base)) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(base) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(root, name)
		sources[filepath.ToSlash(inside)] = string(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return parseSources(sources)
}

// parseSources groups files (path → text) by folder.
func parseSources(sources map[string]string) ([]sourcePackage, error) {
	set := token.NewFileSet()
	folders := map[string]*sourcePackage{}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		file, err := parser.ParseFile(set, name, sources[name], parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", name, err)
		}
		folder := path.Dir(name)
		if folders[folder] == nil {
			folders[folder] = &sourcePackage{folder: folder}
		}
		folders[folder].files = append(folders[folder].files, sourceFile{file, strings.HasSuffix(name, "_test.go")})
	}
	var all []sourcePackage
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		all = append(all, *folders[folder])
	}
	return all, nil
}

// violations lists every breach of the tables, once per package and cause.
func violations(packages []sourcePackage) []string {
	var found []string
	for _, p := range packages {
		if layerOf(p.folder) < 0 {
			found = append(found, p.folder+": has no place in the layout")
			continue
		}
		if problem := packageComment(p); problem != "" {
			found = append(found, p.folder+": "+problem)
		}
		for _, f := range p.files {
			for _, problem := range fileProblems(p.folder, f) {
				if problem = p.folder + ": " + problem; !slices.Contains(found, problem) {
					found = append(found, problem)
				}
			}
		}
	}
	return found
}

func fileProblems(folder string, f sourceFile) []string {
	var found []string
	for _, spec := range f.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		if problem := importProblem(folder, imported, f.isTest); problem != "" {
			found = append(found, problem)
			continue
		}
		if slices.Contains(pure, folder) && !f.isTest && spec.Name != nil && spec.Name.Name == "." {
			found = append(found, "imports "+imported+" without a name")
		}
	}
	if slices.Contains(pure, folder) && !f.isTest {
		found = append(found, clockUses(f)...)
	}
	return found
}

// importProblem names the first rule that one import breaks, or nothing.
func importProblem(folder, imported string, inTest bool) string {
	for _, c := range confined {
		if within(imported, c.imports) && !within(folder, c.folder) && imported != module+"/"+folder {
			return fmt.Sprintf("imports %s: only %s may", imported, c.folder)
		}
	}
	own, ofModule := strings.CutPrefix(imported, module+"/")
	if ofModule && slices.ContainsFunc(harnesses, func(h string) bool { return within(own, h) && !within(folder, h) }) {
		if inTest || slices.ContainsFunc(harnesses, func(h string) bool { return within(folder, h) }) {
			return ""
		}
		return "imports " + imported + ", which is for tests"
	}
	if ofModule && layerOf(own) > layerOf(folder) {
		return "imports " + imported + ", which lies below it"
	}
	if slices.Contains(pure, folder) && !inTest && !mayPureImport(imported) {
		return "is pure and imports " + imported
	}
	return ""
}

func mayPureImport(imported string) bool {
	inside := func(list []string) bool {
		return slices.ContainsFunc(list, func(parent string) bool { return within(imported, parent) })
	}
	if own, ofModule := strings.CutPrefix(imported, module+"/"); ofModule {
		return slices.Contains(pure, own) || within(own, "schemas")
	}
	if domain, _, _ := strings.Cut(imported, "/"); strings.Contains(domain, ".") {
		return inside(pureLibraries)
	}
	return slices.Contains(pureExceptions, imported) || !inside(impure)
}

// clockUses finds every mention of a clock function, called or passed on, under whatever name its package is imported.
func clockUses(f sourceFile) []string {
	names := map[string]string{}
	for _, spec := range f.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = imported
	}
	var found []string
	ast.Inspect(f.File, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		// An identifier that the parser resolved is a variable or type of this file, not a package.
		if x, ok := selector.X.(*ast.Ident); ok && x.Obj == nil && slices.Contains(clocks[names[x.Name]], selector.Sel.Name) {
			found = append(found, "is pure and uses "+path.Base(names[x.Name])+"."+selector.Sel.Name)
		}
		return true
	})
	return found
}

// packageComment wants "Package name ..." in a file that people wrote; a command's comment begins otherwise, and
// a package that is all generated only needs some comment.
func packageComment(p sourcePackage) string {
	files := p.files
	if written := slices.DeleteFunc(slices.Clone(files), func(f sourceFile) bool { return ast.IsGenerated(f.File) }); len(written) > 0 {
		files = written
	}
	problem := "has no package comment"
	for _, f := range files {
		comment, name := strings.TrimSpace(f.Doc.Text()), strings.TrimSuffix(f.Name.Name, "_test")
		if comment == "" {
			continue
		}
		if name == "main" || ast.IsGenerated(f.File) || strings.HasPrefix(comment, "Package "+name+" ") {
			return ""
		}
		problem = "package comment must begin with \"Package " + name + "\""
	}
	return problem
}

// strayEntries returns the top-level entries of a list of files, one a line, that topLevel does not know.
func strayEntries(files string) []string {
	stray := map[string]bool{}
	for file := range strings.Lines(files) {
		if entry, _, _ := strings.Cut(strings.TrimSpace(file), "/"); !slices.Contains(topLevel, entry) {
			stray[entry] = true
		}
	}
	return slices.Sorted(maps.Keys(stray))
}

// layerOf returns the index of a folder's layer, or -1 when the layout has no place for it.
func layerOf(folder string) int {
	if i := slices.Index(layers, folder); i >= 0 {
		return i
	}
	return slices.IndexFunc(layers, func(layer string) bool {
		parent, andBelow := strings.CutSuffix(layer, "/...")
		return andBelow && within(folder, parent)
	})
}

// within tells whether a slash-separated path is the parent or lies below it.
func within(name, parent string) bool {
	return name == parent || strings.HasPrefix(name, parent+"/")
}
