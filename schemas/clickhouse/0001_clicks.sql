-- Clicks as they lie in the log, one row each. Never changed, but by a repair.
--
-- Deduplication: plain MergeTree remembers nothing unless it is told how much. Every table that an insert reaches remembers
-- its last blocks, so that the identical block under the same token counts once in each of them. 10,000 blocks are the
-- time for which the sink may repeat an insert unseen; see SameTokenFor in projections/runner.
--
-- fsync: the sink forgets a block when its insert is answered, so an answered insert must survive a power cut.
CREATE TABLE IF NOT EXISTS clicks_raw
(
    link_id       UInt64                CODEC(Delta, ZSTD(1)),
    time          DateTime64(6, 'UTC')  CODEC(Delta, ZSTD(1)),
    class         Enum8('human' = 0, 'bot' = 1, 'preview' = 2, 'probe' = 3),
    visitor       UInt64                COMMENT 'salted hash, the salt rotates daily' CODEC(ZSTD(1)),
    namespace     LowCardinality(String),
    code          String                CODEC(ZSTD(1)),
    version       UInt64                COMMENT 'of the link, as it was served' CODEC(ZSTD(1)),
    status        UInt16                CODEC(ZSTD(1)),
    channel       Enum8('link' = 0, 'qr' = 1),
    country       LowCardinality(String),
    region_code   LowCardinality(String),
    referrer_host String                CODEC(ZSTD(1)),
    device        LowCardinality(String),
    os            LowCardinality(String),
    browser       LowCardinality(String),
    utm_source    String                CODEC(ZSTD(1)),
    utm_medium    String                CODEC(ZSTD(1)),
    utm_campaign  String                CODEC(ZSTD(1)),
    utm_term      String                CODEC(ZSTD(1)),
    utm_content   String                CODEC(ZSTD(1)),
    ip            IPv6                  COMMENT 'truncated to /24 or /48; :: when unknown' CODEC(ZSTD(1)),
    region        LowCardinality(String) COMMENT 'of the node',
    -- The event id.
    node          LowCardinality(String),
    boot          FixedString(16)       CODEC(ZSTD(1)),
    partition     UInt32                CODEC(ZSTD(1)),
    sequence      UInt64                CODEC(Delta, ZSTD(1)),
    -- Where the click lies in hoplog.clicks: partition, offset, place within the record.
    log_partition UInt32                CODEC(ZSTD(1)),
    log_offset    Int64                 CODEC(Delta, ZSTD(1)),
    log_index     UInt32                CODEC(Delta, ZSTD(1)),
    INDEX log_place (log_partition, log_offset) TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (link_id, time, log_partition, log_offset, log_index)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;

-- The aggregates keep the log's partition in their key: a partition has one writer at a time, so what it wrote can be
-- thrown away and counted again from the raw rows while all others go on.
CREATE TABLE IF NOT EXISTS clicks_minute
(
    link_id       UInt64,
    bucket        DateTime('UTC'),
    log_partition UInt32,
    human         SimpleAggregateFunction(sum, UInt64),
    bot           SimpleAggregateFunction(sum, UInt64),
    preview       SimpleAggregateFunction(sum, UInt64),
    probe         SimpleAggregateFunction(sum, UInt64)
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (link_id, bucket, log_partition)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;

CREATE TABLE IF NOT EXISTS clicks_hour AS clicks_minute
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (link_id, bucket, log_partition)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;

-- Days are days of UTC, as the visitor's salt has them: within one, distinct hashes of human clicks are distinct visitors.
-- The state is exact; it costs 8 bytes per visitor, link and day.
CREATE TABLE IF NOT EXISTS clicks_day
(
    link_id       UInt64,
    bucket        DateTime('UTC'),
    log_partition UInt32,
    human         SimpleAggregateFunction(sum, UInt64),
    bot           SimpleAggregateFunction(sum, UInt64),
    preview       SimpleAggregateFunction(sum, UInt64),
    probe         SimpleAggregateFunction(sum, UInt64),
    visitors      AggregateFunction(uniqExact, UInt64)
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(bucket)
ORDER BY (link_id, bucket, log_partition)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS clicks_to_minute TO clicks_minute AS
SELECT link_id, toStartOfMinute(time, 'UTC') AS bucket, log_partition,
    countIf(class = 'human') AS human, countIf(class = 'bot') AS bot,
    countIf(class = 'preview') AS preview, countIf(class = 'probe') AS probe
FROM clicks_raw
GROUP BY link_id, bucket, log_partition;

CREATE MATERIALIZED VIEW IF NOT EXISTS clicks_to_hour TO clicks_hour AS
SELECT link_id, toStartOfHour(time, 'UTC') AS bucket, log_partition,
    countIf(class = 'human') AS human, countIf(class = 'bot') AS bot,
    countIf(class = 'preview') AS preview, countIf(class = 'probe') AS probe
FROM clicks_raw
GROUP BY link_id, bucket, log_partition;

CREATE MATERIALIZED VIEW IF NOT EXISTS clicks_to_day TO clicks_day AS
SELECT link_id, toDateTime(toStartOfDay(time, 'UTC'), 'UTC') AS bucket, log_partition,
    countIf(class = 'human') AS human, countIf(class = 'bot') AS bot,
    countIf(class = 'preview') AS preview, countIf(class = 'probe') AS probe,
    uniqExactStateIf(visitor, class = 'human') AS visitors
FROM clicks_raw
GROUP BY link_id, bucket, log_partition;

-- How far the sink is. One row per report; the largest next counts.
CREATE TABLE IF NOT EXISTS sink_progress
(
    log_partition UInt32,
    next          Int64  COMMENT 'every click below this offset is in clicks_raw and the aggregates',
    as_of         DateTime64(6, 'UTC') COMMENT 'when the log took the last of them'
)
ENGINE = ReplacingMergeTree(next)
ORDER BY log_partition;
