-- Merges of raw clicks cost more processor time than their insert. Two things make them cheaper while parts are small, which
-- is where most of the merging is done: a part is one file of data instead of two for each of 29 columns, and all columns
-- are merged in one pass. A question for one link reads a few granules either way.
--
-- 1 GiB, before compression, is about five million clicks. From there on parts are wide, and merged column by column, which
-- needs less memory.
ALTER TABLE clicks_raw MODIFY SETTING
    min_bytes_for_wide_part = 1073741824,
    vertical_merge_algorithm_min_rows_to_activate = 5000000;
