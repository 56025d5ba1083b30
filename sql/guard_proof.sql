-- R3: an end state needs evidence of this order that says so, and that decided nothing before; every message tells what to call instead.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('PROOF1', 'processing'), shop.make('PROOF2', 'paid'), shop.make('PROOF3', 'failed');
-- no evidence, evidence that is not there, another order's, and one that says something else
\set VERBOSITY terse
UPDATE payguard.orders SET status = 'paid' WHERE reference = 'PROOF1';
\set VERBOSITY default
UPDATE payguard.orders SET status = 'paid', paid_at = now(), decided_by = 999999999 WHERE reference = 'PROOF1';
SELECT shop.fails($$UPDATE payguard.orders SET status = 'paid', paid_at = now(), decided_by = (SELECT decided_by FROM payguard.orders WHERE reference = 'PROOF2') WHERE reference = 'PROOF1'$$) LIKE
	'PG003: order "PROOF1" in table "orders" cannot change from processing to paid | Evidence %, named by its column "decided_by", is not about this order. | Orders move by payguard.claim_order() and by evidence: %' AS refused;
SELECT regexp_replace(shop.fails($$UPDATE payguard.orders SET status = 'failed', decided_by = (SELECT max(id) FROM payguard.evidence e WHERE e.gateway_reference = 'PROOF2') WHERE reference = 'PROOF2'$$), 'vidence [0-9]+', 'vidence N');
SELECT * FROM shop.report('PROOF1', 'unknown');
SELECT regexp_replace(shop.fails($$UPDATE payguard.orders SET status = 'failed', decided_by = (SELECT max(e.id) FROM payguard.evidence e JOIN payguard.orders p ON p.id = e.order_id WHERE p.reference = 'PROOF1') WHERE reference = 'PROOF1'$$), 'vidence [0-9]+', 'vidence N');
-- evidence that decided an earlier state
SELECT verdict FROM payguard.request_refund('PROOF2', 'proof2', 1);
SELECT * FROM shop.callback('charge.reversed', 'PROOF2', 'ch_proof2');
SELECT regexp_replace(shop.fails($$UPDATE payguard.orders SET status = 'paid' WHERE reference = 'PROOF2'$$), 'vidence [0-9]+', 'vidence N');
-- a decision cannot be given another reason afterwards
SELECT regexp_replace(shop.fails($$UPDATE payguard.orders SET decided_by = (SELECT min(e.id) FROM payguard.evidence e JOIN payguard.orders p ON p.id = e.order_id WHERE p.reference = 'PROOF2') WHERE reference = 'PROOF2'$$), 'vidence [0-9]+', 'vidence N');
-- a failed order is charged again by its next attempt only
SELECT shop.fails($$UPDATE payguard.orders SET status = 'processing' WHERE reference = 'PROOF3'$$);
SELECT shop.fails($$UPDATE payguard.orders SET status = 'processing', attempt_no = attempt_no + 2 WHERE reference = 'PROOF3'$$);
-- attempts, payments, refunds
SELECT regexp_replace(shop.fails($$UPDATE payguard.attempts SET state = 'succeeded' WHERE gateway_reference = 'PROOF1'$$), 'vidence [0-9]+', 'vidence N');
SELECT shop.fails($$UPDATE payguard.attempts SET state = 'sending' WHERE gateway_reference = 'PROOF2'$$);
SELECT shop.fails($$UPDATE payguard.payments SET state = 'kept' WHERE provider_id = 'ch_proof2'$$);
SELECT regexp_replace(shop.fails($$UPDATE payguard.refunds SET state = 'succeeded' WHERE request_key = 'proof2'$$), 'refund "[0-9]+"', 'refund "N"');
-- a row that says it is settled cannot be made without evidence
\set VERBOSITY terse
INSERT INTO payguard.orders (reference, amount, currency, status) VALUES ('PROOF4', 1, 'CNY', 'closed');
INSERT INTO payguard.orders (reference, amount, currency, status, decided_by) VALUES ('PROOF4', 1, 'CNY', 'paid', 1);
\set VERBOSITY default
-- one statement that moves many rows is refused as a whole
UPDATE payguard.orders SET status = 'created' WHERE reference LIKE 'PROOF%';
SELECT reference, status FROM payguard.orders WHERE reference LIKE 'PROOF%' ORDER BY 1;
-- a later BEFORE trigger cannot slip past
CREATE FUNCTION pg_temp.slip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.status := 'created'; RETURN NEW; END $$;
BEGIN;
CREATE TRIGGER zzz_slip BEFORE UPDATE ON payguard.orders FOR EACH ROW EXECUTE FUNCTION pg_temp.slip();
UPDATE payguard.orders SET metadata = '{"a": 1}' WHERE reference = 'PROOF2';
ROLLBACK;
