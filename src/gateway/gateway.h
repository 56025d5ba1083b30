/*-------------------------------------------------------------------------
 *
 * gateway.h
 *	  What gateways speak: from a foreign server and its user mapping to a
 *	  Gateway, from an order to request bytes, from bytes to Evidence.
 *
 * Nothing here knows the ledger's tables.  All functions allocate in the
 * current memory context.  Those that read the catalogs need a transaction
 * and say so; the others work without one, so that the worker can interpret
 * answers while nothing is held.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_GATEWAY_H
#define PAYGUARD_GATEWAY_H

#include "postgres.h"

#include "core/evidence.h"
#include "core/state.h"
#include "nodes/pg_list.h"
#include "utils/jsonb.h"

typedef struct Adapter Adapter; /* a compiled adapter document; see adapter.h */

/* What one call asks for. */
typedef enum CallOp
{
	CALL_CHARGE,
	CALL_QUERY,
	CALL_REFUND,
	CALL_REFUND_QUERY,
	CALL_CLOSE,
	CALL_SETTLEMENT
} CallOp;

#define CALL_OP_COUNT	6

/*
 * A configured account.  Secrets are in it: it is never logged, and lives
 * in a memory context of its own until payguard_gateway_free().
 */
typedef struct Gateway
{
	MemoryContext context;
	Oid			serverid;
	char	   *name;
	const Adapter *adapter;
	char	   *adapter_name;
	char	   *base_url;
	GatewayMode mode;
	int64		connect_timeout;	/* microseconds */
	int64		total_timeout;	/* microseconds */
	int			max_in_flight;	/* 0: the worker's own bound only */
	int			rate_limit;		/* calls a second; 0: none */
	char	   *webhook_url;
	char	   *proxy;			/* never NULL; "" = none */
	char	   *ca_file;		/* NULL: the system's */
	char	   *api_key;		/* NULL: none configured */
	char	   *api_user;
	List	   *webhook_secrets;	/* of char *; several during rotation */
	GatewayTraits traits;
} Gateway;

/* --- registry.c: needs a transaction ------------------------------------ */

/*
 * The gateway of that name.  With check_usage the current user must hold
 * USAGE on the foreign server (42501).  A server that does not exist, is not
 * payguard's, or names an adapter that does not exist: PG004.  With missing_ok
 * NULL comes back for those instead.  Secrets from files are read anew when
 * the file changed.
 *
 * The result is cached and must not be freed or kept past the transaction,
 * except by payguard_gateway_copy().
 */
extern const Gateway *payguard_gateway_get(const char *name, bool check_usage, bool missing_ok);

/* A copy that outlives the transaction (the worker's), and its release. */
extern Gateway *payguard_gateway_copy(const Gateway *gateway, MemoryContext parent);
extern void payguard_gateway_free(Gateway *gateway);

/* Traits by name for decisions on stored facts; conservative ones when the
 * gateway is gone (no key, no query). */
extern void payguard_gateway_traits(const char *name, GatewayTraits *traits);

/* --- adapter.c ----------------------------------------------------------- */

/* Does the adapter define this op? */
extern bool payguard_adapter_has_op(const Adapter *adapter, CallOp op);

/* Suffix put before the number of a later attempt ("_r"). */
extern const char *payguard_adapter_retry_suffix(const Adapter *adapter);

/* Does a reference fit the adapter's pattern? */
extern bool payguard_adapter_reference_fits(const Adapter *adapter, const char *gateway_reference);

/* The pattern, for hints. */
extern const char *payguard_adapter_reference_pattern(const Adapter *adapter);

/* May the worker make charges, or only the application (card data)? */
extern bool payguard_adapter_charges_by_worker(const Adapter *adapter);

/* --- request.c: no transaction needed ------------------------------------ */

/* What request templates may name. */
typedef struct CallFacts
{
	CallOp		op;
	const char *reference;		/* of the attempt or refund: the
								 * gateway_reference */
	const char *order_reference;
	const char *idempotency_key;
	const char *provider_id;	/* of the charge, once known */
	const char *charge_reference;	/* refunds: the charge's gateway_reference */
	const char *charge_id;		/* refunds: the charge's provider_id */
	Money		money;
	Jsonb	   *payment;		/* what claim_order got; NULL or an object */
	int			attempt_no;
} CallFacts;

/* A rendered request, without authentication. */
typedef struct CallRequest
{
	const char *method;
	const char *path;			/* after base_url, query string included */
	List	   *headers;		/* of char *, "Name: value" */
	const char *body;			/* may be NULL */
	size_t		body_length;
} CallRequest;

/*
 * Render.  Every value is checked for what may not stand in a header or path
 * (22023 names the field).  PG004 when the adapter has no such op.
 */
extern CallRequest *payguard_request_render(const Gateway *gateway, const CallFacts *facts);

/* To and from the frozen bytes of outbox.request ("POST /x\r\nName: v\r\n\r\nbody"). */
extern bytea *payguard_request_freeze(const CallRequest *request);
extern CallRequest *payguard_request_thaw(const bytea *frozen);

/* Headers that authenticate, computed at sending ("Authorization: Bearer ..."). */
extern List *payguard_request_auth(const Gateway *gateway, const CallRequest *request);

/* The request as it goes out: the same one, or a copy whose form body holds
 * the fields that authenticate.  Call it before sending; never store the result. */
extern const CallRequest *payguard_request_seal(const Gateway *gateway, const CallRequest *request);

/* --- answer.c: no transaction needed; never raises an error --------------- */

/* What came back from the wire. */
typedef struct HttpReply
{
	Transport	transport;
	bool		complete;		/* the transfer ended well (CURLE_OK, one
								 * send, size in bounds) */
	bool		aborted_by_us;	/* our own guard stopped it before the first
								 * byte */
	const char *headers;		/* raw header lines of the final answer,
								 * NUL-terminated */
	size_t		headers_length;
	const char *body;
	size_t		body_length;
	const char *error;			/* curl's text; no secrets in it */
} HttpReply;

/*
 * What does this answer say?  Follows the table in research part A: not sent
 * when no request can have left, unknown unless the answer is complete, known
 * to the adapter's rules and names our own reference, amount and currency
 * (a `paid` for other money is a `paid` with that money: the door's mismatch).
 * Source is answer for charge, refund and close, query for queries.
 * received_at is filled by the caller.
 */
extern Evidence *payguard_answer_read(const Gateway *gateway, const CallFacts *asked,
									  const HttpReply *reply);

/* --- delivery.c: events to endpoints ----------------------------------------- */

/* A gateway of this adapter is an endpoint: it takes events and no payments. */
#define ENDPOINT_ADAPTER	"events"
/* Its max_in_flight where the option is not set. */
#define ENDPOINT_MAX_IN_FLIGHT	16

extern bool payguard_gateway_is_endpoint(const Gateway *gateway);

/* Names of all endpoints (List of char *), from the catalogs. */
extern List *payguard_endpoint_names(void);

/* Why nothing can be delivered there; NULL when it can. */
extern const char *payguard_delivery_hindrance(const Gateway *gateway);

/* The request of an outbox item, and the event's id in it. */
extern CallRequest *payguard_delivery_thaw(const bytea *frozen);
extern const char *payguard_delivery_id(const CallRequest *request);

/* Headers with time and signature, by Standard Webhooks. */
extern List *payguard_delivery_sign(const Gateway *gateway, const CallRequest *request, int64 now);

/* What became of it: succeeded (2xx), not_sent, or unknown. */
extern Evidence *payguard_delivery_read(const HttpReply *reply);

/* --- webhook.c: no transaction needed -------------------------------------- */

typedef enum WebhookOutcome
{
	WEBHOOK_REFUSED,			/* signature missing, wrong or too old:
								 * nothing is stored */
	WEBHOOK_IGNORED,			/* a type that means nothing here */
	WEBHOOK_UNREADABLE,			/* signed, not understood; evidence is filled
								 * as far as it goes */
	WEBHOOK_EVIDENCE
} WebhookOutcome;

typedef struct WebhookItem
{
	WebhookOutcome outcome;
	const char *reason;			/* for people: why refused or unreadable */
	Evidence   *evidence;		/* for UNREADABLE and EVIDENCE */
} WebhookItem;

typedef struct WebhookReading
{
	List	   *items;			/* of WebhookItem *; at least one */
	int			ack_status;		/* what to answer when it was stored */
	const char *ack_body;
	int			refuse_status;	/* what to answer when it was refused */
} WebhookReading;

/*
 * Read a callback.  headers is a JSON object of name -> value (or array of
 * values); names are compared without case.  `now` is the clock (microseconds
 * since 2000) that tolerances are measured by.  PG004 when the adapter has no
 * webhook or the gateway no secret.
 */
extern WebhookReading *payguard_webhook_read(const Gateway *gateway, Jsonb *headers,
											 const bytea *body, const char *url, int64 now);

/* --- stats.c: counters of each gateway in shared memory --------------------- */

typedef enum GatewayCounter
{
	COUNTER_CALLS,
	COUNTER_PAID,
	COUNTER_FAILED,
	COUNTER_UNKNOWN,
	COUNTER_NOT_SENT,
	COUNTER_CALLBACKS,
	COUNTER_CALLBACKS_REFUSED,
	COUNTER_CALLBACKS_IGNORED,
	COUNTER_DUPLICATE_SENDS,	/* stopped by the send-once guard */
	GATEWAY_COUNTERS
} GatewayCounter;

/* At library load while preloading; without preloading counting does nothing. */
extern void payguard_stats_request_shmem(void);
extern void payguard_stats_startup_shmem(void);
extern void payguard_stats_count(const char *gateway, GatewayCounter counter);

/* Latency of a call, for the histogram. */
extern void payguard_stats_latency(const char *gateway, int milliseconds);

/* One gateway's counters, for the view gateway_stats. */
#define GATEWAY_LATENCY_BUCKETS 20	/* bucket i: below 2^i ms; the last: all
									 * longer */

typedef struct GatewayStats
{
	Oid			database;		/* InvalidOid: the overflow slot of all
								 * databases */
	char		gateway[NAMEDATALEN];
	uint64		counters[GATEWAY_COUNTERS];
	uint64		latency[GATEWAY_LATENCY_BUCKETS];
	uint64		latency_sum;	/* milliseconds */
} GatewayStats;

/* Slots in use (palloc'd); 0 without preloading. */
extern int	payguard_stats_read(GatewayStats **stats);
extern const char *payguard_counter_word(GatewayCounter counter);

#endif							/* PAYGUARD_GATEWAY_H */
