-- R15, R18: the same notification again only counts; the same fact under a new event id is a duplicate; nothing runs twice.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('DUPL01', 'processing');
SELECT * FROM shop.callback('charge.paid', 'DUPL01', 'ch_dupl01', event_id => 'evt_dupl01', occurred_at => '2026-01-01 10:00Z');
SELECT * FROM shop.callback('charge.paid', 'DUPL01', 'ch_dupl01', event_id => 'evt_dupl01', occurred_at => '2026-01-01 10:00Z');
SELECT * FROM shop.callback('charge.paid', 'DUPL01', 'ch_dupl01', event_id => 'evt_dupl01', occurred_at => '2026-01-01 10:00Z');
SELECT event_id, deliveries, verdict FROM payguard.evidence WHERE gateway_reference = 'DUPL01';
-- the gateway reports the same result under a new id
SELECT * FROM shop.callback('charge.paid', 'DUPL01', 'ch_dupl01', event_id => 'evt_dupl02', occurred_at => '2026-01-01 10:00Z');
SELECT * FROM shop.look('DUPL01');
-- the same id with another body is another notification
SELECT * FROM shop.callback('charge.paid', 'DUPL01', 'ch_dupl01', event_id => 'evt_dupl01', occurred_at => '2026-01-01 10:01Z');
SELECT event_id, deliveries, verdict FROM payguard.evidence WHERE gateway_reference = 'DUPL01' ORDER BY id;
-- the same id and body for another gateway is another notification
CREATE SERVER dupl FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://dupl.example');
CREATE USER MAPPING FOR PUBLIC SERVER dupl OPTIONS (webhook_secret 'whsec_cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl');
SELECT * FROM shop.callback('charge.paid', 'DUPL01', 'ch_dupl01', event_id => 'evt_dupl01', occurred_at => '2026-01-01 10:00Z', gateway => 'dupl');
-- one order, one success, one event; the answer of the application is the same fact
SELECT * FROM shop.report('DUPL01', 'paid', 'ch_dupl01', 399.00, 'CNY');
SELECT status, attempts, payments, events, review FROM shop.look('DUPL01');
-- duplicates of every other definite fact
SELECT shop.make('DUPL02', 'processing');
SELECT * FROM shop.callback('charge.failed', 'DUPL02', 'ch_dupl02', event_id => 'evt_dupl03');
SELECT * FROM shop.callback('charge.failed', 'DUPL02', 'ch_dupl02', event_id => 'evt_dupl03');
SELECT * FROM shop.callback('charge.failed', 'DUPL02', 'ch_dupl02', event_id => 'evt_dupl04');
SELECT * FROM shop.callback('charge.closed', 'DUPL02', 'ch_dupl02', event_id => 'evt_dupl05');
SELECT * FROM shop.look('DUPL02');
SELECT * FROM shop.callback('charge.reversed', 'DUPL01', 'ch_dupl01', occurred_at => '2026-01-02 10:00Z');
SELECT * FROM shop.callback('charge.reversed', 'DUPL01', 'ch_dupl01', occurred_at => '2026-01-02 10:00Z');
SELECT * FROM shop.callback('charge.reinstated', 'DUPL01', 'ch_dupl01', occurred_at => '2026-01-03 10:00Z');
SELECT * FROM shop.callback('charge.reinstated', 'DUPL01', 'ch_dupl01', occurred_at => '2026-01-03 10:00Z');
SELECT status, payments, events FROM shop.look('DUPL01');
-- repeated deliveries store nothing else
SELECT shop.counts() AS before \gset
SELECT verdict FROM shop.callback('charge.failed', 'DUPL02', 'ch_dupl02', event_id => 'evt_dupl03');
SELECT regexp_replace(shop.counts(), 'deliveries.*', '') = regexp_replace(:'before', 'deliveries.*', '') AS same_rows;
DROP SERVER dupl CASCADE;
SELECT * FROM shop.damage();
