/*-------------------------------------------------------------------------
 *
 * check_money.c
 *	  The rules of check() about orders, attempts, payments and refunds.
 *
 * None of these is possible by payguard's own functions; a row here means
 * that somebody wrote past the guards, that a restore lost something, or that
 * payguard has a fault.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "api/check.h"

#define ORDER_NAME	"format('order %s', o.reference)"
#define SETTLED		"('paid', 'failed', 'closed', 'refunded', 'reversed')"

const CheckRule payguard_money_rules[] = {
	{
		"paid_without_payment",
		"the order says that it was paid, but no payment is counted for it",
		"SELECT " ORDER_NAME ", 'status ' || o.status FROM payguard.orders o"
		" WHERE o.status IN ('paid', 'refunded', 'reversed')"
		" AND NOT EXISTS (SELECT FROM payguard.payments p WHERE p.order_id = o.id AND p.counted)"
	},
	{
		"payment_without_paid",
		"a payment is counted, but the order does not say that it was paid",
		"SELECT " ORDER_NAME ", format('status %s, payment %s', o.status, p.provider_id)"
		" FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id"
		" WHERE p.counted AND o.status NOT IN ('paid', 'refunded', 'reversed')"
	},
	{
		"payment_differs",
		"the counted payment is not what the order asked for",
		"SELECT " ORDER_NAME ", format('order %s %s, payment %s: %s %s', o.amount, o.currency,"
		" p.provider_id, p.amount, p.currency)"
		" FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id"
		" WHERE p.counted AND (p.amount <> o.amount OR p.currency <> o.currency)"
	},
	{
		"counted_twice",
		"more than one payment is counted for the order",
		"SELECT " ORDER_NAME ", count(*) || ' payments' FROM payguard.payments p"
		" JOIN payguard.orders o ON o.id = p.order_id WHERE p.counted"
		" GROUP BY o.id, o.reference HAVING count(*) > 1"
	},
	{
		"reversal_differs",
		"order and counted payment do not agree on whether the payment was reversed",
		"SELECT " ORDER_NAME ", format('order %s, payment %s: %s', o.status, p.provider_id, p.state)"
		" FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id"
		" WHERE p.counted AND (p.state = 'reversed') <> (o.status = 'reversed')"
	},
	{
		"success_without_payment",
		"the attempt succeeded, but its payment is missing",
		"SELECT " ORDER_NAME ", format('attempt %s %s', a.no, a.state)"
		" FROM payguard.attempts a JOIN payguard.orders o ON o.id = a.order_id"
		" WHERE a.state IN ('succeeded', 'surplus') AND NOT EXISTS"
		" (SELECT FROM payguard.payments p WHERE p.order_id = a.order_id AND p.attempt_no = a.no AND p.counted"
		"  UNION ALL"
		"  SELECT FROM payguard.payments p WHERE p.order_id = a.order_id AND p.attempt_no = a.no AND NOT p.counted)"
	},
	{
		"attempt_missing",
		"the order is being charged, but the attempt is missing",
		"SELECT " ORDER_NAME ", format('status %s, attempt %s', o.status, o.attempt_no)"
		" FROM payguard.orders o WHERE o.status IN ('processing', 'unknown') AND NOT EXISTS"
		" (SELECT FROM payguard.attempts a WHERE a.order_id = o.id AND a.no = o.attempt_no)"
	},
	{
		"order_stranded",
		"nothing would ever move the order: no call is planned, no lease is live and nobody is asked to look",
		"SELECT " ORDER_NAME ", format('status %s, attempt %s', o.status, o.attempt_no)"
		" FROM payguard.orders o WHERE o.status IN ('processing', 'unknown')"
		" AND NOT EXISTS (SELECT FROM payguard.outbox x WHERE x.order_id = o.id AND x.next_run_at < 'infinity')"
		" AND NOT EXISTS (SELECT FROM payguard.attempts a WHERE a.order_id = o.id AND a.no = o.attempt_no"
		"   AND a.lease_until > clock_timestamp())"
		" AND NOT EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id)"
	},
	{
		"attempt_left_open",
		"the order is settled, but this attempt is open and nothing would end it",
		"SELECT " ORDER_NAME ", format('status %s, attempt %s %s', o.status, a.no, a.state)"
		" FROM payguard.attempts a JOIN payguard.orders o ON o.id = a.order_id"
		" WHERE a.state IN ('claimed', 'sending', 'pending', 'unknown') AND o.status IN " SETTLED
		" AND (a.lease_until IS NULL OR a.lease_until <= clock_timestamp())"
		" AND NOT EXISTS (SELECT FROM payguard.outbox x WHERE x.order_id = a.order_id"
		"   AND x.attempt_no = a.no AND x.next_run_at < 'infinity')"
		" AND NOT EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id)"
	},
	{
		"decision_without_evidence",
		"the evidence that decided this is missing or about another order",
		"SELECT d.object, 'evidence ' || d.decided_by FROM ("
		" SELECT " ORDER_NAME " AS object, o.id AS order_id, o.decided_by FROM payguard.orders o"
		" UNION ALL SELECT format('attempt %s of order id %s', a.no, a.order_id), a.order_id, a.decided_by"
		"  FROM payguard.attempts a"
		" UNION ALL SELECT format('refund %s', f.id), f.order_id, f.decided_by FROM payguard.refunds f) AS d"
		" LEFT JOIN payguard.evidence e ON e.id = d.decided_by"
		" WHERE d.decided_by IS NOT NULL AND e.order_id IS DISTINCT FROM d.order_id"
	},
	{
		"evidence_unmatched",
		"a fact has waited for longer than an hour for an order that is not here; judge it by payguard.resolve_evidence()",
		"SELECT format('evidence %s', e.id), format('gateway %s, reference %s, id %s, %s since %s',"
		" e.gateway, coalesce(e.gateway_reference, 'none'), coalesce(e.provider_id, 'none'), e.result, e.received_at)"
		" FROM payguard.evidence e WHERE e.verdict = 'parked' AND e.order_id IS NULL"
		" AND e.received_at < clock_timestamp() - interval '1 hour'"
	},
	{
		"slot_wrong",
		"the live order of this purchase is missing, over, or for something else",
		"SELECT format('slot of %s for %s', s.customer, s.product),"
		" format('order %s, %s', coalesce(o.reference, 'id ' || s.order_id), coalesce(o.status::text, 'missing'))"
		" FROM payguard.order_slots s LEFT JOIN payguard.orders o ON o.id = s.order_id"
		" WHERE o.id IS NULL OR o.status IN ('closed', 'refunded', 'reversed')"
		" OR NOT o.once OR o.customer <> s.customer OR o.product <> s.product"
	},
	{
		"entitlement_wrong",
		"the customer holds this without a paid order",
		"SELECT format('entitlement of %s to %s', t.customer, t.product),"
		" format('order %s, %s', coalesce(o.reference, 'id ' || t.order_id), coalesce(o.status::text, 'missing'))"
		" FROM payguard.entitlements t LEFT JOIN payguard.orders o ON o.id = t.order_id"
		" WHERE o.id IS NULL OR o.status <> 'paid'"
		" OR NOT o.once OR o.customer <> t.customer OR o.product <> t.product"
	},
	{
		"refunds_exceed_payment",
		"more was given back, or is to be, than was paid",
		"SELECT format('payment %s of gateway %s', p.provider_id, p.gateway),"
		" format('payment %s, own refunds %s, external %s', p.amount,"
		"  coalesce(sum(f.amount) FILTER (WHERE NOT f.external), 0),"
		"  coalesce(sum(f.amount) FILTER (WHERE f.external), 0))"
		" FROM payguard.refunds f JOIN payguard.payments p"
		"  ON p.gateway = f.gateway AND p.provider_id = f.charge_id"
		" WHERE f.state <> 'failed'"
		" GROUP BY p.gateway, p.provider_id, p.order_id, p.amount"
		" HAVING sum(f.amount) > p.amount"
		/* one made by hand, or one that had failed, is booked all the same with a review */
		" AND NOT ((bool_or(f.external) OR EXISTS (SELECT FROM payguard.evidence e"
		"    WHERE e.order_id = p.order_id AND e.refund_id = ANY (array_agg(f.id)) AND e.verdict = 'applied'"
		"    AND e.result IN ('failed', 'closed', 'not_sent', 'not_found')))"
		"  AND (EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = p.order_id)"
		"   OR EXISTS (SELECT FROM payguard.evidence e WHERE e.order_id = p.order_id AND e.source = 'operator')))"
	},
	{
		"refund_stranded",
		"nothing would ever move the refund: no call is planned, no lease is live and nobody is asked to look",
		"SELECT format('refund %s', f.id), format('order %s, %s %s', o.reference, f.amount, f.state)"
		" FROM payguard.refunds f JOIN payguard.orders o ON o.id = f.order_id"
		" WHERE f.state NOT IN ('succeeded', 'failed')"
		" AND (f.lease_until IS NULL OR f.lease_until <= clock_timestamp())"
		" AND NOT EXISTS (SELECT FROM payguard.outbox x WHERE x.order_id = f.order_id"
		/* one that waits for its payments to be confirmed is moved by that question */
		"   AND (x.refund_id = f.id OR f.state = 'pending' AND x.op = 'query'"
		"    AND starts_with(f.request_key, 'payguard:give-back:'))"
		"   AND x.next_run_at < 'infinity')"
		" AND NOT EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = f.order_id)"
	},
	{
		"refund_without_payment",
		"the refund gives back a payment that is not here",
		"SELECT format('refund %s', f.id), format('order %s, charge %s of gateway %s', o.reference, f.charge_id, f.gateway)"
		" FROM payguard.refunds f JOIN payguard.orders o ON o.id = f.order_id"
		" WHERE NOT EXISTS (SELECT FROM payguard.payments p WHERE p.gateway = f.gateway"
		"   AND p.provider_id = f.charge_id AND p.order_id = f.order_id)"
	},
	{
		"refund_reserved_wrong",
		"what is reserved for refunds of the order's payment is not the sum of our own refunds that have not failed",
		"SELECT " ORDER_NAME ", format('refund_reserved %s, refunds %s', o.refund_reserved, coalesce(s.amount, 0))"
		" FROM payguard.orders o LEFT JOIN"
		" (SELECT f.order_id, sum(f.amount) AS amount FROM payguard.refunds f"
		"  JOIN payguard.payments p ON p.gateway = f.gateway AND p.provider_id = f.charge_id AND p.counted"
		"  WHERE f.state <> 'failed' AND NOT f.external GROUP BY f.order_id) AS s ON s.order_id = o.id"
		" WHERE (s.amount IS NOT NULL OR o.refund_reserved <> 0)"
		" AND o.refund_reserved <> least(coalesce(s.amount, 0), o.amount)"
	},
	{
		"refunded_wrong",
		"order and refunds do not agree on whether all was given back",
		"SELECT " ORDER_NAME ", format('status %s, refunded_amount %s of %s', o.status, o.refunded_amount, o.amount)"
		" FROM payguard.orders o WHERE o.status = 'refunded' AND o.refunded_amount < o.amount"
		" OR o.status = 'paid' AND o.refunded_amount >= o.amount"
		"  AND NOT EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id)"
	},
	{
		"refunded_amount_wrong",
		"the order's refunded amount is not the sum of its refunds that succeeded",
		"SELECT " ORDER_NAME ", format('refunded_amount %s, refunds %s', o.refunded_amount, coalesce(s.amount, 0))"
		" FROM payguard.orders o LEFT JOIN"
		" (SELECT f.order_id, sum(f.amount) AS amount FROM payguard.refunds f"
		"  JOIN payguard.payments p ON p.gateway = f.gateway AND p.provider_id = f.charge_id AND p.counted"
		"  WHERE f.state = 'succeeded' GROUP BY f.order_id) AS s ON s.order_id = o.id"
		" WHERE (s.amount IS NOT NULL OR o.refunded_amount <> 0)"
		" AND o.refunded_amount <> coalesce(s.amount, 0)"
	},
	{
		"row_orphaned",
		"the row belongs to an order, refund or evidence that is not here",
		"SELECT format('attempt %s', a.gateway_reference), 'order id ' || a.order_id FROM payguard.attempts a"
		" WHERE NOT EXISTS (SELECT FROM payguard.orders o WHERE o.id = a.order_id)"
		" UNION ALL SELECT format('payment %s of gateway %s', p.provider_id, p.gateway), 'order id ' || p.order_id"
		" FROM payguard.payments p"
		" WHERE NOT EXISTS (SELECT FROM payguard.orders o WHERE o.id = p.order_id)"
		" UNION ALL SELECT format('refund %s', f.id), 'order id ' || f.order_id FROM payguard.refunds f"
		" WHERE NOT EXISTS (SELECT FROM payguard.orders o WHERE o.id = f.order_id)"
		" UNION ALL SELECT format('evidence %s', e.id), 'order id ' || e.order_id FROM payguard.evidence e"
		" WHERE e.order_id IS NOT NULL AND NOT EXISTS (SELECT FROM payguard.orders o WHERE o.id = e.order_id)"
		" UNION ALL SELECT format('provider id %s of gateway %s', i.provider_id, i.gateway), 'order id ' || i.order_id"
		" FROM payguard.provider_ids i"
		" WHERE NOT EXISTS (SELECT FROM payguard.orders o WHERE o.id = i.order_id)"
		" UNION ALL SELECT 'review', 'order id ' || r.order_id FROM payguard.reviews r"
		" WHERE NOT EXISTS (SELECT FROM payguard.orders o WHERE o.id = r.order_id)"
		" UNION ALL SELECT format('event %s', v.seq), format('%s of order %s', v.type, v.aggregateid)"
		" FROM payguard.events v"
		" WHERE NOT EXISTS (SELECT FROM payguard.orders o WHERE o.reference = v.aggregateid)"
		" UNION ALL SELECT format('event %s', v.seq), 'evidence ' || v.cause FROM payguard.events v"
		" WHERE NOT EXISTS (SELECT FROM payguard.evidence e WHERE e.id = v.cause)"
	},
	{NULL, NULL, NULL}
};
