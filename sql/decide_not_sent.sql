-- Decision table, R9: not_sent and unknown, as an application and as the worker tell them, in every state of the order.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('NSND-' || s, s) FROM unnest(ARRAY['processing', 'unknown', 'pending', 'failed', 'paid', 'reversed']) AS s;
SELECT s, r.verdict, r.status FROM unnest(ARRAY['processing', 'unknown', 'pending', 'failed', 'paid', 'reversed']) AS s, LATERAL shop.report('NSND-' || s, 'not_sent') AS r;
SELECT s, l.status, l.attempts, l.events, l.review, l.calls FROM unnest(ARRAY['processing', 'unknown', 'pending', 'failed', 'paid', 'reversed']) AS s, shop.look('NSND-' || s) AS l;
SELECT shop.make('UNKN-' || s, s) FROM unnest(ARRAY['processing', 'unknown', 'pending', 'failed', 'paid', 'reversed']) AS s;
SELECT s, r.verdict, r.status FROM unnest(ARRAY['processing', 'unknown', 'pending', 'failed', 'paid', 'reversed']) AS s, LATERAL shop.report('UNKN-' || s, 'unknown') AS r;
SELECT s, l.status, l.attempts, l.events, l.review, l.calls FROM unnest(ARRAY['processing', 'unknown', 'pending', 'failed', 'paid', 'reversed']) AS s, shop.look('UNKN-' || s) AS l;
-- unknown never becomes failed by a claim, by time or by being told again; the order stays out of reach of a second charge
SELECT * FROM shop.claim('UNKN-processing');
SELECT * FROM shop.report('UNKN-processing', 'unknown');
SELECT status, attempts, evidence, calls FROM shop.look('UNKN-processing');
-- what the worker learns, judged when the order is claimed: nothing left this machine, so the same bytes are to go again
SELECT shop.make('NSND-w1', 'created'), shop.make('NSND-w2', 'created'), shop.make('NSND-w3', 'created');
SELECT shop.plant('NSND-w1', 'answer', 'not_sent');
SELECT verdict FROM shop.claim('NSND-w1', 'worker');
SELECT * FROM shop.look('NSND-w1');
-- an answer that was lost: unknown, and the gateway is asked
SELECT shop.plant('NSND-w2', 'answer', 'unknown');
SELECT verdict FROM shop.claim('NSND-w2', 'worker');
SELECT evidence, status, attempts, events, review FROM shop.look('NSND-w2');
-- after that, "not sent" says nothing any more: an earlier send may have left
SELECT shop.plant('NSND-w3', 'answer', 'unknown'), shop.plant('NSND-w3', 'answer', 'not_sent');
SELECT verdict FROM shop.claim('NSND-w3', 'worker');
SELECT evidence, status, attempts, events, review FROM shop.look('NSND-w3');
-- a status query that tells nothing, or was not sent: nothing moves, asked again
SELECT shop.make('NSND-q1', 'created'), shop.make('NSND-q2', 'created');
SELECT shop.plant('NSND-q1', 'query', 'unknown'), shop.plant('NSND-q2', 'query', 'not_sent');
SELECT a.verdict, b.verdict FROM shop.claim('NSND-q1') AS a, shop.claim('NSND-q2') AS b;
SELECT * FROM shop.look('NSND-q1');
SELECT * FROM shop.look('NSND-q2');
SELECT * FROM shop.damage();
