-- Bad input that has no shape of its own: missing bytes, wrong words, absurd times, and text that is harmless although it looks hostile.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('WORDS1', 'processing'), shop.make('WORDS2', 'created');
SELECT shop.counts() AS before \gset
-- nulls of the other types
SELECT shop.fails($$SELECT payguard.apply_callback('shop', '{}', NULL)$$);
SELECT shop.fails($$SELECT payguard.verify_callback('shop', '{}', '{}', NULL, NULL)$$);
SELECT shop.fails($$SELECT payguard.create_order(NULL, NULL)$$);
SELECT shop.fails($$SELECT payguard.adopt(NULL)$$);
SELECT shop.fails($$SELECT payguard.adopt('')$$);
SELECT shop.fails($$SELECT payguard.adopt(E' \n\t')$$);
SELECT shop.fails($$SELECT payguard.adapter(NULL)$$);
SELECT shop.fails($$SELECT payguard.grant_access(NULL, 'application')$$);
SELECT shop.fails($$SELECT payguard.grant_access(CURRENT_USER::regrole, NULL)$$);
SELECT shop.fails($$SELECT payguard.grant_access(CURRENT_USER::regrole, 'applications')$$);
SELECT shop.fails($$SELECT payguard.grant_access('nobody_of_that_name', 'monitor')$$);
SELECT shop.fails($$SELECT payguard.grant_access(0::oid::regrole, 'monitor')$$) LIKE '42704: %' AS refused;
-- words
SELECT w, shop.fails(format('SELECT payguard.claim_order(%L, %L, call_by => %L)', 'WORDS2', 'k', w)) FROM unnest(ARRAY['gateway', 'Worker', 'worker ', 'app']) AS w;
SELECT w, shop.fails(format('SELECT payguard.record_attempt(shop.token(%L), %L)', 'WORDS1', w)) FROM unnest(ARRAY['reversed', 'reinstated', 'not_found', 'succeeded', 'PAID', 'declined', 'success']) AS w;
-- a body that is too large, one byte more than a million and a bit
SELECT shop.fails($$SELECT payguard.apply_callback('shop', '{}', convert_to(repeat('x', 1048577), 'UTF8'))$$);
SELECT verdict, http_status FROM payguard.apply_callback('shop', '{}', convert_to(repeat('x', 1048576), 'UTF8'));
-- functions that are triggers, called by hand or hung on other tables
SELECT payguard.guard();
CREATE TEMP TABLE mine (id integer);
CREATE TRIGGER t AFTER UPDATE ON mine FOR EACH ROW EXECUTE FUNCTION payguard.guard();
INSERT INTO mine VALUES (1);
UPDATE mine SET id = 2;
CREATE TRIGGER u BEFORE INSERT ON mine FOR EACH STATEMENT EXECUTE FUNCTION payguard.guard_truncate();
INSERT INTO mine VALUES (1);
SELECT shop.fails($$SELECT payguard.payguard_fdw_validator(ARRAY['adapter=generic', 'base_url=x'], 1417::oid)$$);
SELECT shop.fails($$SELECT payguard.payguard_fdw_validator(ARRAY['adapter=generic'], 0::oid)$$);
SELECT shop.counts() = :'before' AS nothing_stored;
-- an infinite or absurd time of the fact is kept as it is, and breaks nothing
SELECT verdict, status FROM payguard.record_attempt(shop.token('WORDS1'), 'pending', occurred_at => 'infinity');
SELECT verdict, status FROM payguard.record_attempt(shop.token('WORDS1'), 'paid', 'ch_words1', 399.00, 'CNY', occurred_at => '-infinity');
SELECT paid_at FROM payguard.orders WHERE reference = 'WORDS1';
SELECT status, paid_at FROM payguard.order_status('WORDS1');
SELECT count(*) > 3 AS told FROM payguard.why('WORDS1');
-- hostile text is text
SELECT created FROM payguard.create_order(1, 'CNY', 'shop', 'WORDS3', '''; DROP TABLE payguard.orders; --', '%s%n"$1\ ', metadata => '{"<script>": "\u0001\ud83d\ude00"}');
SELECT claimed FROM payguard.claim_order('WORDS3', '"; $$ -- \', payment => '{"a\"b": "line\nbreak \u0007 \\ / é 支付 😀", "n": 1e3, "deep": [[[[[{"x": null}]]]]]}');
SELECT convert_from(x.request, 'UTF8') FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'WORDS3';
SELECT customer, product FROM payguard.orders WHERE reference = 'WORDS3';
SELECT what, regexp_replace(detail, ' (at|since) .*', '') FROM payguard.why('WORDS3');
SELECT * FROM shop.damage();
