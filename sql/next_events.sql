-- R19: each event once for each consumer, in the consumer's own transaction; again after a rollback.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

-- what the other tests have left behind is had
CREATE FUNCTION pg_temp.drain(consumer text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	total bigint := 0;
	n bigint;
BEGIN
	LOOP
		SELECT count(*) INTO n FROM payguard.next_events(consumer, 1000);
		total := total + n;
		EXIT WHEN n = 0;
	END LOOP;
	RETURN total;
END
$$;
SELECT pg_temp.drain('mail') = count(*) AS all_at_first FROM payguard.events;
SELECT pg_temp.drain('stock') = count(*) AS all_for_another FROM payguard.events;
SELECT * FROM payguard.next_events('mail');

SELECT shop.make('NEXT01', 'paid'), shop.make('NEXT02', 'failed'), shop.make('NEXT03', 'reversed');
SELECT type, aggregatetype, aggregateid, payload ->> 'status' AS status FROM payguard.next_events('mail');
SELECT type FROM payguard.next_events('mail');
-- the rows are those of the table
SELECT count(*) AS rows, count(*) FILTER (WHERE n = ROW (v.id, v.seq, v.type, v.aggregatetype, v.aggregateid, v.payload, v.created_at, v.cause)::payguard.next_events_result) AS same
	FROM payguard.next_events('stock', 2) AS n JOIN payguard.events v ON v.seq = n.seq;
SELECT type, aggregateid FROM payguard.next_events('stock', 1);
SELECT type, aggregateid FROM payguard.next_events('stock');

-- a consumer that fails gets them again, another one is not concerned
SELECT shop.make('NEXT04', 'paid'), shop.make('NEXT05', 'paid');
BEGIN;
SELECT aggregateid FROM payguard.next_events('mail');
SELECT aggregateid FROM payguard.next_events('mail');
ROLLBACK;
SELECT aggregateid FROM payguard.next_events('stock');
BEGIN;
SAVEPOINT try;
SELECT aggregateid FROM payguard.next_events('mail', 1);
ROLLBACK TO try;
SELECT aggregateid FROM payguard.next_events('mail', 1);
-- it keeps this one although its work fails, notes that, and goes on
SAVEPOINT work;
SELECT 1 / 0;
ROLLBACK TO work;
SELECT aggregateid FROM payguard.next_events('mail', 1);
COMMIT;
SELECT aggregateid FROM payguard.next_events('mail');
-- an event of the same transaction, and one that is undone
BEGIN;
SELECT shop.make('NEXT06', 'paid');
SELECT aggregateid FROM payguard.next_events('mail');
ROLLBACK;
SELECT shop.make('NEXT07', 'paid');
SELECT aggregateid FROM payguard.next_events('mail');

-- at the stricter levels, too
SELECT shop.make('NEXT08', 'paid'), shop.make('NEXT09', 'paid');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT aggregateid FROM payguard.next_events('mail', 1);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT aggregateid FROM payguard.next_events('mail', 1);
COMMIT;
SELECT count(*) AS twice FROM (SELECT FROM payguard.event_deliveries GROUP BY consumer, event HAVING count(*) > 1) AS d;

-- bad arguments
\set VERBOSITY default
SELECT payguard.next_events(NULL);
SELECT payguard.next_events('');
SELECT payguard.next_events('@shop');
SELECT payguard.next_events('a' || chr(10) || 'b');
SELECT payguard.next_events(repeat('x', 201));
SELECT payguard.next_events('mail', NULL);
SELECT payguard.next_events('mail', 0);
SELECT payguard.next_events('mail', 1001);
BEGIN READ ONLY;
SELECT payguard.next_events('mail');
ROLLBACK;

-- the guard
TRUNCATE payguard.event_deliveries;
-- an application may call it, others may not
CREATE ROLE next_app; CREATE ROLE next_hook;
SELECT payguard.grant_access('next_app', 'application'), payguard.grant_access('next_hook', 'callback');
SET ROLE next_app;
SELECT count(*) >= 0 AS allowed FROM payguard.next_events('app', 1);
SET ROLE next_hook;
SELECT payguard.next_events('hook');
RESET ROLE;
DROP OWNED BY next_app, next_hook;
DROP ROLE next_app, next_hook;
SELECT * FROM shop.damage();
