package clicks

// grain is one table of aggregates: what counting the raw rows again must give.
type grain struct {
	table   string
	seconds int64
	bucket  string // of a raw row
	unique  bool   // it knows visitors
}

var (
	minutes = grain{"clicks_minute", 60, "toStartOfMinute(time, 'UTC')", false}
	hours   = grain{"clicks_hour", 60 * 60, "toStartOfHour(time, 'UTC')", false}
	days    = grain{"clicks_day", daySeconds, "toDateTime(toStartOfDay(time, 'UTC'), 'UTC')", true}
	grains  = []grain{minutes, hours, days}
)

const (
	countRaw  = "countIf(class = 'human') AS human, countIf(class = 'bot') AS bot, countIf(class = 'preview') AS preview, countIf(class = 'probe') AS probe"
	sumCounts = "sum(human) AS human, sum(bot) AS bot, sum(preview) AS preview, sum(probe) AS probe"
)

// rebuild is the statement that counts a part of the raw rows into the table, as the table's view does with new ones.
func (g grain) rebuild(where string) string {
	columns, values := "link_id, bucket, log_partition, human, bot, preview, probe", countRaw
	if g.unique {
		columns, values = columns+", visitors", values+", uniqExactStateIf(visitor, class = 'human') AS visitors"
	}
	return "INSERT INTO " + g.table + " (" + columns + ") SELECT link_id, " + g.bucket + " AS bucket, log_partition, " + values +
		" FROM clicks_raw WHERE " + where + " GROUP BY link_id, bucket, log_partition"
}

// compare is a question for the keys whose aggregate is not what the raw rows come to: partition, link, bucket, the sum of
// all counts in the raw rows and in the aggregate.
func (g grain) compare(raw, aggregate string) string {
	uniqueRaw, uniqueAggregate, differ := "", "", ""
	if g.unique {
		uniqueRaw = ", toInt64(uniqExactIf(visitor, class = 'human')) AS v"
		uniqueAggregate = ", -toInt64(uniqExactMerge(visitors)) AS v"
		differ = " OR sum(v) != 0"
	}
	const key = "log_partition, link_id, bucket"
	return "SELECT " + key + ", toUInt64(sum(found)), toUInt64(sum(counted)) FROM (" +
		"SELECT log_partition, link_id, " + g.bucket + " AS bucket, toInt64(countIf(class = 'human')) AS h, toInt64(countIf(class = 'bot')) AS b," +
		" toInt64(countIf(class = 'preview')) AS p, toInt64(countIf(class = 'probe')) AS o" + uniqueRaw + ", count() AS found, toUInt64(0) AS counted" +
		" FROM clicks_raw WHERE " + raw + " GROUP BY " + key +
		" UNION ALL SELECT " + key + ", -toInt64(sum(human)) AS h, -toInt64(sum(bot)) AS b," +
		" -toInt64(sum(preview)) AS p, -toInt64(sum(probe)) AS o" + uniqueAggregate + ", toUInt64(0) AS found, toUInt64(-(h + b + p + o)) AS counted" +
		" FROM " + g.table + " WHERE " + aggregate + " GROUP BY " + key +
		") GROUP BY " + key + " HAVING sum(h) != 0 OR sum(b) != 0 OR sum(p) != 0 OR sum(o) != 0" + differ
}
