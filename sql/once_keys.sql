-- R25: any other money-moving write of the application can use the same guard.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT * FROM payguard.begin_once('payout', 'P1', '{"amount": 10}');
SELECT * FROM payguard.begin_once('payout', 'P1', '{"amount": 10}');
SELECT payguard.finish_once('payout', 'P1', '{"id": 7}');
SELECT payguard.finish_once('payout', 'P1', '{"id": 7}');
SELECT * FROM payguard.begin_once('payout', 'P1', '{"amount":   10.0}');
SELECT * FROM payguard.begin_once('payout', 'P1', '{"amount": 10}');
SELECT * FROM payguard.begin_once('other', 'P1', '{"amount": 11}');
SELECT shop.fails($$SELECT payguard.begin_once('payout', 'P1', '{"amount": 11}')$$);
SELECT shop.fails($$SELECT payguard.finish_once('payout', 'P1', '{"id": 8}')$$);
SELECT shop.fails($$SELECT payguard.finish_once('payout', 'P2', '{"id": 8}')$$);
SELECT shop.fails($$SELECT payguard.begin_once('payout', NULL, '{}')$$);
SELECT shop.fails($$SELECT payguard.begin_once('payout', 'P3', '[1]')$$);
SELECT shop.fails($$SELECT payguard.begin_once('payout', 'P3', '{"pan": "4111111111111111"}')$$);
-- whoever rolls back was never first
BEGIN;
SELECT first FROM payguard.begin_once('payout', 'P4', '{}');
ROLLBACK;
SELECT first FROM payguard.begin_once('payout', 'P4', '{}');

-- a table of the application's own, as in a ticket shop: 1 new, 2 paid, 3 used, 9 void
CREATE TABLE shop.ticket (id integer PRIMARY KEY, status smallint);
CREATE TRIGGER guard BEFORE UPDATE ON shop.ticket FOR EACH ROW
	EXECUTE FUNCTION payguard.enforce_transitions('status', '1>2', '2>3', '1>9');
INSERT INTO shop.ticket VALUES (1, 1), (2, NULL);
UPDATE shop.ticket SET status = 2 WHERE id = 1 RETURNING status;
UPDATE shop.ticket SET status = 2 WHERE id = 1 RETURNING status;
SELECT shop.fails($$UPDATE shop.ticket SET status = 1 WHERE id = 1$$);
SELECT shop.fails($$UPDATE shop.ticket SET status = 9 WHERE id = 1$$);
SELECT shop.fails($$UPDATE shop.ticket SET status = NULL WHERE id = 1$$);
UPDATE shop.ticket SET status = 9 WHERE id = 2 RETURNING status;
CREATE TRIGGER wrong BEFORE UPDATE ON shop.ticket FOR EACH ROW EXECUTE FUNCTION payguard.enforce_transitions('state', '1>2');
SELECT shop.fails($$UPDATE shop.ticket SET status = 3 WHERE id = 1$$);
DROP TRIGGER wrong ON shop.ticket;
CREATE TRIGGER wrong BEFORE UPDATE ON shop.ticket FOR EACH ROW EXECUTE FUNCTION payguard.enforce_transitions('status', '1-2');
SELECT shop.fails($$UPDATE shop.ticket SET status = 3 WHERE id = 1$$);
SELECT shop.fails($$SELECT payguard.enforce_transitions()$$);
DROP TABLE shop.ticket;
