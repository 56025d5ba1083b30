/*-------------------------------------------------------------------------
 *
 * outbox.h
 *	  What outbox.c and lease.c share; for the ledger only.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_OUTBOX_H
#define PAYGUARD_OUTBOX_H

#include "ledger/ledger.h"

extern OutboxOp payguard_outbox_op_of(const char *word);
extern void payguard_outbox_delete(int64 id);
extern void payguard_outbox_ask_later(const OutboxItem *item, TimestampTz next_run_at);
extern void payguard_outbox_rest(int64 id, int32 epoch);
extern void payguard_outbox_move(int64 id, TimestampTz next_run_at);
extern void payguard_outbox_put_off(const OutboxItem *item, TimestampTz next_run_at);
extern void payguard_outbox_wake(TimestampTz due);

/* lease.c: lease one item, in its row and in the struct. */
extern void payguard_outbox_lease(OutboxTake *take, OutboxItem *item, TimestampTz now);

/* deliver.c: items of the op deliver, which belong to no order. */
extern void payguard_deliver_lease(OutboxTake *take, const Datum *ids, int nids, TimestampTz now);
extern void payguard_deliver_answer(const OutboxItem *item, bool is_accepted);
extern void payguard_deliver_revive(const char *endpoint);

/* lease.c: tell the door about an item that will not go out; false: parked. */
extern bool payguard_lease_tell(const OutboxItem *item, EvidenceResult result, const char *code,
								bool is_stop);

#endif							/* PAYGUARD_OUTBOX_H */
