-- R19: every change of state writes its event in the same transaction, once, with a cause, in the columns of Debezium's outbox event router.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT attname, format_type(atttypid, NULL), attnotnull FROM pg_attribute WHERE attrelid = 'payguard.events'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attname COLLATE "C";
SELECT created FROM payguard.create_order(399.00, 'CNY', 'shop', 'EVENT01', 'Zoë "Z"', 'one/year', true);
SELECT * FROM shop.claim('EVENT01');
-- no event before anything is known
SELECT count(*) FROM payguard.events WHERE aggregateid = 'EVENT01';
SELECT verdict FROM shop.callback('charge.failed', 'EVENT01', 'ch_event01', more => '{"code": "card_declined"}', occurred_at => '2026-01-01 10:00Z');
SELECT * FROM shop.claim('EVENT01');
SELECT verdict FROM shop.callback('charge.paid', 'EVENT01_r2', 'ch_event02', occurred_at => '2026-01-01 11:00Z');
SELECT verdict FROM shop.callback('charge.paid', 'EVENT01', 'ch_event03', occurred_at => '2026-01-01 11:00Z');
SELECT verdict FROM shop.callback('charge.reversed', 'EVENT01_r2', 'ch_event02', occurred_at => '2026-01-02 11:00Z');
SELECT verdict FROM shop.callback('charge.reinstated', 'EVENT01_r2', 'ch_event02', occurred_at => '2026-01-03 11:00Z');
SELECT aggregatetype, type, payload FROM payguard.events WHERE aggregateid = 'EVENT01' ORDER BY seq;
-- ids are different, causes are facts about this order, seq goes up
SELECT count(*) = count(DISTINCT v.id) AS ids, bool_and(e.order_id = o.id) AS causes, bool_and(v.created_at BETWEEN now() - interval '1 min' AND clock_timestamp()) AS times
	FROM payguard.events v JOIN payguard.evidence e ON e.id = v.cause JOIN payguard.orders o ON o.reference = v.aggregateid WHERE v.aggregateid = 'EVENT01';
-- the same fact again writes nothing
SELECT count(*) AS before FROM payguard.events WHERE aggregateid = 'EVENT01' \gset
SELECT verdict FROM shop.callback('charge.paid', 'EVENT01_r2', 'ch_event02', occurred_at => '2026-01-01 11:00Z');
SELECT verdict FROM shop.callback('charge.failed', 'EVENT01', 'ch_event01');
SELECT count(*) - :before AS more FROM payguard.events WHERE aggregateid = 'EVENT01';
-- undone with the change that it tells of
SELECT shop.make('EVENT02', 'processing');
BEGIN;
SELECT verdict FROM shop.callback('charge.paid', 'EVENT02', 'ch_event04');
SELECT count(*) FROM payguard.events WHERE aggregateid = 'EVENT02';
ROLLBACK;
SELECT count(*) FROM payguard.events WHERE aggregateid = 'EVENT02';
-- one of a type for each cause, by the table itself
\set VERBOSITY terse
INSERT INTO payguard.events (cause, aggregatetype, aggregateid, type, payload) SELECT cause, aggregatetype, aggregateid, type, payload FROM payguard.events WHERE aggregateid = 'EVENT01' AND type = 'order.paid';
-- no secret, lease token or client data is told
SELECT count(*) FROM payguard.events WHERE payload::text ~ 'l1_[0-9]+_|whsec_|key-of-the-tests';
