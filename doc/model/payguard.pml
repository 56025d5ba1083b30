/*
 * payguard.pml
 *	  A model of how payguard claims, leases, sends, books, asks and fails over.
 *
 * One order, two attempts, one worker, one gateway, applications, and faults.
 * Each atomic step is one transaction of the ledger, or one thing that happens
 * outside of it.  The inlines carry the names of the C functions that they
 * follow (src/core/decide.c, src/ledger/, src/worker/batch.c), so that both
 * can be read side by side.  README.md says what is modelled and what is not,
 * and script/model runs the checks.
 *
 * What a check looks at is chosen by macros:
 *	GATEWAY		KEYED, KEYLESS, SHORT_KEY, SHORT_KEY_NO_QUERY
 *	CALLER		WORKER, APPLICATION, EITHER
 *	FAULT		NO_FAULT, RESTART, FAILOVER
 *	CLIENTS, CLAIMS, APPS, CRASHES, NOISE, CALLBACKS, GLITCHES
 *	WITHOUT_...	switches one guard off
 *	BEYOND_...	leaves one of the assumptions
 */

/* --- what is checked -------------------------------------------------------- */

#define KEYED				1	/* key and reference known for ever, query */
#define KEYLESS				2	/* neither key nor unique reference; query */
#define SHORT_KEY			3	/* a key with a finite life, query */
#define SHORT_KEY_NO_QUERY	4	/* the same, query by the gateway's id only */

#define WORKER				1
#define APPLICATION			2
#define EITHER				3

#define NO_FAULT			0
#define RESTART				1	/* the server crashes: unflushed commits are lost */
#define FAILOVER			2	/* an asynchronous standby is promoted */

#ifndef GATEWAY
#define GATEWAY KEYED
#endif
#ifndef CALLER
#define CALLER WORKER
#endif
#ifndef FAULT
#define FAULT NO_FAULT
#endif
#ifndef CLIENTS
#define CLIENTS 1
#endif
#ifndef CLAIMS
#define CLAIMS 2				/* claims that may be tried */
#endif
#ifndef APPS
#define APPS 2					/* applications that may get a lease */
#endif
#ifndef CRASHES
#define CRASHES 1				/* of the worker */
#endif
#ifndef NOISE
#define NOISE 2					/* lost or empty answers; FOREVER: any number */
#endif
#ifndef CALLBACKS
#define CALLBACKS 1
#endif
#ifndef GLITCHES
#define GLITCHES 0				/* settled "not found" that is not true */
#endif
#define FOREVER				255

#define HAS_KEY				(GATEWAY != KEYLESS)
#define KEY_IS_SHORT		(GATEWAY == SHORT_KEY || GATEWAY == SHORT_KEY_NO_QUERY)
#define REFERENCE_UNIQUE	(GATEWAY == KEYED)
#define CAN_REPLAY			(GATEWAY != KEYLESS)
#define ASK_BY_REFERENCE	(GATEWAY != SHORT_KEY_NO_QUERY)

mtype = {
	/* the order */
	O_CREATED, O_PROCESSING, O_UNKNOWN, O_PAID, O_FAILED,
	/* an attempt */
	A_NONE, A_CLAIMED, A_SENDING, A_PENDING, A_SUCCEEDED, A_FAILED, A_UNKNOWN, A_SURPLUS,
	/* an outbox item; resting = ready, due at infinity */
	X_NONE, X_READY, X_RESTING, X_SENDING, X_LAPSED,
	/* what a fact says; NOT_FOUND before and after the settle time */
	R_PAID, R_FAILED, R_PENDING, R_UNKNOWN, R_NOT_SENT, R_NOT_FOUND, R_NOT_FOUND_SETTLED,
	/* where it comes from; STOP and LAPSE are answers that payguard makes */
	S_ANSWER, S_APPLICATION, S_CALLBACK, S_QUERY, S_STOP, S_LAPSE,
	/* what the gateway holds for a reference */
	G_NONE, G_PAID, G_DECLINED, G_PENDING,
	/* a call of the worker, or of an application */
	C_IDLE, C_LEASED, C_OUT, C_ANSWERED,
	/* a claiming session */
	L_IDLE, L_VIEWED, L_LOCKED,
	/* an application with a lease token */
	P_FREE, P_HOLDS, P_OUT, P_TOLD, P_GONE
};

/* --- the ledger: what a failover can set back ------------------------------- */

typedef Attempt {
	mtype state = A_NONE;
	mtype charge = X_NONE;		/* outbox items */
	mtype query = X_NONE;
	bit by_application;
	bit has_token;				/* not so for a claim that only asks */
	bit may_have_left;
	bit not_found;				/* settled ones so far */
	bit positive_known;
	bit reported;				/* answered_at is set */
	bit asked;					/* a query has told since the switch */
	bit parked;					/* a parked "failed" */
};

mtype status = O_CREATED;
byte latest = 0;				/* attempt_no; attempt i is at[i - 1] */
byte counted = 0;				/* the attempt whose payment counts */
bit review = 0;
bit not_found_since = 0;		/* any query said so since the switch */
Attempt at[2];
bit switched = 0;				/* the order is older than a new timeline */

/* a state of the past, on the standby or on disk */
mtype kept_status = O_CREATED;
byte kept_latest = 0;
byte kept_counted = 0;
bit kept_review = 0;
Attempt kept[2];
hidden Attempt blank;

/* --- everything else --------------------------------------------------------- */

byte lock = 0;					/* the session that holds the order's row */
mtype session[CLIENTS] = L_IDLE;
mtype viewed_status[CLIENTS] = O_CREATED;
byte viewed_latest[CLIENTS];
byte claims = CLAIMS;

mtype charge_call[2] = C_IDLE;	/* the worker's memory */
mtype charge_result[2] = R_UNKNOWN;
mtype query_call[2] = C_IDLE;
mtype query_result[2] = R_UNKNOWN;

byte wire[2];					/* requests on their way to the gateway */
#ifdef WITHOUT_DERIVED_KEYS
bit drawn_again[2];				/* the attempt's key was lost, and another one drawn */
#define same_key(a)			(!drawn_again[a])
#else
#define same_key(a)			true
#endif
mtype gateway[2] = G_NONE;
bit was_pending[2];
byte charged = 0;				/* how often money has moved */
byte sends[2];					/* times that a charge was begun */
bit key_old[2];					/* by payguard's clock */
bit key_forgotten[2];			/* by the gateway */

typedef App {
	mtype state = P_FREE;
	byte about;					/* the attempt's index */
	bit lease_live;
	bit known;					/* the token is in this timeline's ledger */
	bit left;					/* its request has left */
	mtype result = R_UNKNOWN;
};
App app[APPS];

byte noise = NOISE;
byte crashes = CRASHES;
byte callbacks = CALLBACKS;
byte glitches = GLITCHES;
bit fault_done = 0;

/* scratch, always 0 between steps */
hidden byte i;
hidden byte live;
hidden byte quiet;
hidden byte x;

#define noisy				(noise > 0)
#define make_noise			noise = (noise == FOREVER -> FOREVER : noise - 1)

#define is_waiting			(status == O_PROCESSING || status == O_UNKNOWN)
#define is_current(a)		(latest == (a) + 1)
#define is_awaited(a)		(is_waiting && at[a].state != A_NONE && is_current(a))
#define is_open(a)			(at[a].state == A_CLAIMED || at[a].state == A_SENDING || \
							 at[a].state == A_PENDING || at[a].state == A_UNKNOWN)
#define may_ask(a)			(at[a].state != A_NONE && \
							 (ASK_BY_REFERENCE || at[a].positive_known))

#ifdef WITHOUT_KEY_LIFE
#define key_alive(a)		HAS_KEY
#else
#define key_alive(a)		(HAS_KEY && !(KEY_IS_SHORT && key_old[a]))
#endif
#define may_replay(a)		(!at[a].by_application && CAN_REPLAY && \
							 (REFERENCE_UNIQUE || key_alive(a)))

#ifdef WITHOUT_QUERY_FIRST
#define ask_first(a)		false
#else
#define ask_first(a)		(switched && !at[a].asked)
#endif

/* A claim with this token is in the ledger and its lease has not lapsed. */
inline find_live_lease(a)
{
	live = 0;
	i = 0;
	do
	:: i < APPS ->
		if
		:: app[i].state != P_FREE && app[i].about == a && app[i].known && app[i].lease_live -> live = 1
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/* --- what must always hold ---------------------------------------------------- */

#define sees_one_purchase(a) \
	(same_key(a) && (REFERENCE_UNIQUE || (HAS_KEY && !key_forgotten[a])))
/* The gateway may still take money for what was sent. */
#define may_yet_charge(a) \
	(gateway[a] == G_PENDING || \
	 (wire[a] > 0 && !(gateway[a] != G_NONE && sees_one_purchase(a))))

/*
 * After every transaction.  Something moves an order that waits: a planned
 * call, a call under way, or a person.
 */
inline check_ledger()
{
	assert(!is_waiting || review ||
		   at[latest - 1].charge == X_READY || at[latest - 1].charge == X_SENDING ||
		   at[latest - 1].charge == X_LAPSED ||
		   at[latest - 1].query == X_READY || at[latest - 1].query == X_SENDING);
	/* paid only if the gateway took the money */
	assert(status != O_PAID || (counted > 0 && gateway[counted - 1] == G_PAID));
	/* failed only if it did not, and will not */
	assert(status != O_FAILED || switched ||
		   (charged == 0 && !may_yet_charge(0) && !may_yet_charge(1)))
}

/* --- the outbox (src/ledger/outbox.c) ----------------------------------------- */

#define OWN_NONE	0
#define OWN_CHARGE	1
#define OWN_QUERY	2

/* plan a query, or bring a planned one forward */
inline outbox_plan_query(a, own)
{
	if
	:: at[a].query != X_SENDING || own == OWN_QUERY -> at[a].query = X_READY
	:: else
	fi
}

/* let the frozen bytes go out again */
inline outbox_resend(a, own)
{
	if
	:: at[a].charge == X_READY || at[a].charge == X_RESTING ||
	   ((at[a].charge == X_SENDING || at[a].charge == X_LAPSED) && own == OWN_CHARGE) ->
		at[a].charge = X_READY
	:: else
	fi
}

inline outbox_drop(a)
{
	at[a].charge = X_NONE;
	at[a].query = X_NONE
}

/* --- decisions (src/core/decide.c) --------------------------------------------- */

inline plan_question(a, own)
{
	if
	:: may_ask(a) -> outbox_plan_query(a, own)
	:: !may_ask(a) && may_replay(a) -> outbox_resend(a, own)
	:: else -> review = 1
	fi
}

inline fail(a)
{
	at[a].state = A_FAILED;
	at[a].reported = 1;
	status = O_FAILED;
	outbox_drop(a)
}

/* the order is paid: what never left is stopped (payguard_attempts_stop_others) */
inline stop_other(a)
{
	if
	:: at[1 - a].state == A_CLAIMED && !at[1 - a].may_have_left ->
		at[1 - a].state = A_FAILED;
		at[1 - a].reported = 1;
		at[1 - a].charge = X_NONE;
		at[1 - a].query = X_NONE
	:: else
	fi
}

inline decide_paid(a)
{
	if
	:: counted == a + 1
	:: counted != 0 && counted != a + 1 ->
		at[a].state = A_SURPLUS;
		review = 1;
		outbox_drop(a)
	:: counted == 0 ->
		at[a].state = A_SUCCEEDED;
		at[a].reported = 1;
		counted = a + 1;
		latest = (latest < a + 1 -> a + 1 : latest);
		status = O_PAID;
		outbox_drop(a);
		stop_other(a)
	fi
}

inline decide_failed(a)
{
	if
	:: status == O_CREATED || (at[a].state == A_NONE && is_waiting) -> at[a].parked = 1
	:: else ->
		if
		:: is_awaited(a) -> fail(a)
		:: !is_awaited(a) && is_open(a) ->
			at[a].state = A_FAILED;
			at[a].reported = 1;
			outbox_drop(a)
		:: else
		fi
	fi
}

inline decide_pending(a, own)
{
	if
	:: is_awaited(a) ->
		if
		:: at[a].state == A_CLAIMED || at[a].state == A_SENDING || at[a].state == A_UNKNOWN ->
			at[a].state = A_PENDING;
			at[a].reported = 1
		:: else
		fi;
		at[a].positive_known = 1;
		plan_question(a, own)
	:: else
	fi
}

inline decide_not_sent(a, src, own)
{
	if
	:: !is_awaited(a)
	:: is_awaited(a) && at[a].by_application ->
#ifdef WITHOUT_LEASE_FENCING
		live = 1;
#else
		find_live_lease(a);
		live = live && !at[a].reported;
#ifndef WITHOUT_FENCING_AFTER_SWITCH
		live = live && !ask_first(a);	/* what it reported may be lost */
#endif
#endif
		if
		:: src == S_APPLICATION && live -> fail(a)
		:: else -> plan_question(a, own)
		fi;
		live = 0
	:: is_awaited(a) && !at[a].by_application ->
		if
		:: at[a].may_have_left || ask_first(a) ||
		   (at[a].state != A_CLAIMED && at[a].state != A_SENDING) -> plan_question(a, own)
		:: else ->
			if
			:: outbox_resend(a, own)	/* inside the send window */
			:: fail(a)
			fi
		fi
	fi
}

inline decide_unknown(a, src, own)
{
	if
	:: !is_awaited(a)
#ifdef WITHOUT_UNKNOWN
	:: is_awaited(a) && src == S_ANSWER -> fail(a)
	:: is_awaited(a) && src != S_ANSWER ->
#else
	:: is_awaited(a) ->
#endif
		find_live_lease(a);
		if
		:: src == S_QUERY || (src == S_APPLICATION && !live)
		:: else ->
			if
			:: at[a].state != A_PENDING ->
				at[a].state = A_UNKNOWN;
				at[a].reported = 1;
				status = O_UNKNOWN
			:: else
			fi
		fi;
		live = 0;
#ifdef WITHOUT_LAPSED_IS_UNKNOWN
		if
		:: src == S_LAPSE && !at[a].by_application -> outbox_resend(a, own)
		:: else -> plan_question(a, own)
		fi
#else
		plan_question(a, own)
#endif
	fi
}

#ifdef WITHOUT_TOLD_TWICE
#define told_enough(a)	true
#else
#define told_enough(a)	(at[a].not_found)
#endif

#ifdef WITHOUT_SETTLE_TIME
#define is_settled(r)	true
#else
#define is_settled(r)	((r) == R_NOT_FOUND_SETTLED)
#endif

inline decide_not_found(a, res, own)
{
	if
	:: !is_awaited(a)
	:: is_awaited(a) ->
		plan_question(a, own);
		if
		:: is_settled(res) && (at[a].positive_known || at[a].state == A_PENDING) -> review = 1
		:: else ->
			if
			:: !is_settled(res)
			:: is_settled(res) && !told_enough(a) -> at[a].not_found = 1
			:: is_settled(res) && told_enough(a) ->
				if
				:: at[a].by_application -> fail(a)
				:: !at[a].by_application && may_replay(a) ->
					/* the query ends with its answer: finish_item */
					at[a].query = (own == OWN_QUERY -> X_NONE : at[a].query);
					outbox_resend(a, own)
				:: else -> review = 1
				fi
			fi
		fi
	fi
}

/*
 * The one door (src/ledger/evidence.c).  own is the outbox item whose call
 * told the fact.
 */
inline door(a, src, res, own)
{
	if
	:: res == R_PAID -> decide_paid(a)
	:: res == R_FAILED -> decide_failed(a)
	:: res == R_PENDING -> decide_pending(a, own)
	:: res == R_NOT_SENT -> decide_not_sent(a, src, own)
	:: res == R_UNKNOWN -> decide_unknown(a, src, own)
	:: res == R_NOT_FOUND || res == R_NOT_FOUND_SETTLED -> decide_not_found(a, res, own)
	fi;
	/* the fact is part of the history of the next decision */
	if
	:: (src == S_ANSWER || src == S_LAPSE) && res != R_NOT_SENT -> at[a].may_have_left = 1
	:: else
	fi;
	if
	:: switched && src == S_QUERY && res != R_UNKNOWN ->
		at[a].asked = 1;
		not_found_since = not_found_since || res == R_NOT_FOUND || res == R_NOT_FOUND_SETTLED
	:: else
	fi
}

/* --- a copy of the ledger ------------------------------------------------------ */

inline copy_attempt(to, from)
{
	to.state = from.state;
	to.charge = from.charge;
	to.query = from.query;
	to.by_application = from.by_application;
	to.has_token = from.has_token;
	to.may_have_left = from.may_have_left;
	to.not_found = from.not_found;
	to.positive_known = from.positive_known;
	to.reported = from.reported;
	to.asked = from.asked;
	to.parked = from.parked
}

inline keep_ledger()
{
	kept_status = status;
	kept_latest = latest;
	kept_counted = counted;
	kept_review = review;
	copy_attempt(kept[0], at[0]);
	copy_attempt(kept[1], at[1])
}

/* ForceSyncCommit(): what is committed survives a crash of the server */
inline flush()
{
#if FAULT == RESTART && !defined(WITHOUT_FLUSH)
	if
	:: !fault_done -> keep_ledger()
	:: else
	fi
#else
	skip
#endif
}

/* --- the claim (src/api/claim.c, src/ledger/claim.c) --------------------------- */

#ifdef WITHOUT_UNKNOWN_IS_IN_PROGRESS
#define is_claimable	(status == O_CREATED || status == O_FAILED || status == O_UNKNOWN)
#else
#define is_claimable	(status == O_CREATED || status == O_FAILED)
#endif

#ifdef WITHOUT_CLAIM_LOCK
#define may_take(c)		true
#else
#define may_take(c)		(lock == 0 && status == viewed_status[c] && latest == viewed_latest[c])
#endif

/*
 * The claim commits.  with_token says whether an application may call now; one
 * whose predecessor a failover may have lost only makes the gateway be asked.
 */
inline commit_claim(c, application, with_token)
{
	latest++;
	status = O_PROCESSING;
	at[latest - 1].by_application = application;
	at[latest - 1].has_token = with_token;
	if
	:: application ->
		at[latest - 1].state = A_SENDING;
#ifndef WITHOUT_QUERY_FOR_CLAIMS
		at[latest - 1].query = X_READY;
#endif
		if
		:: with_token ->
			i = 0;
			do
			:: app[i].state != P_FREE -> i++
			:: else -> break
			od;
			app[i].state = P_HOLDS;
			app[i].about = latest - 1;
			app[i].lease_live = 1;
			app[i].known = 1;
			i = 0
		:: else
		fi
	:: else ->
		at[latest - 1].state = A_CLAIMED;
		at[latest - 1].charge = X_READY
	fi;
	/* payguard_retry_parked(): a parked fact may decide it at once */
	if
	:: at[latest - 1].parked ->
		at[latest - 1].parked = 0;
		decide_failed(latest - 1)
	:: else
	fi;
	if
	:: application -> flush()
	:: else
	fi
}

/* payguard_order_may_call(): may an application call, or is the gateway asked first? */
#ifdef WITHOUT_QUERY_FIRST
#define may_call		true
#else
#define may_call		(!switched || not_found_since || \
						 (!ASK_BY_REFERENCE && (REFERENCE_UNIQUE || key_alive(latest))))
#endif
#define is_held			(!may_call && !ASK_BY_REFERENCE)
#define has_free_app	(app[APPS - 1].state == P_FREE)

proctype Session(byte c)
{
end:
	do
	/* look without a lock */
	:: atomic { session[c] == L_IDLE && claims > 0 && latest < 2 && is_claimable ->
		printf("session %d looks: the order can be claimed\n", c);
		claims--;
		viewed_status[c] = status;
		viewed_latest[c] = latest;
		session[c] = L_VIEWED }

	/* take the version that was seen, or lose */
	:: atomic { session[c] == L_VIEWED ->
		if
		:: may_take(c) && latest < 2 ->
			printf("session %d locks the order\n", c);
			lock = c + 1;
			session[c] = L_LOCKED
		:: else -> session[c] = L_IDLE
		fi;
		viewed_status[c] = O_CREATED;
		viewed_latest[c] = 0 }

	/* commit: the one place where an attempt of ours comes to be */
	:: atomic { session[c] == L_LOCKED ->
		session[c] = L_IDLE;
		lock = 0;
		printf("session %d commits its claim of attempt %d\n", c, latest + 1);
		/* one claim wins: whoever commits found nothing under way */
		assert(!is_open(0) && !is_open(1) && status != O_PAID);
		if
		:: CALLER != APPLICATION -> commit_claim(c, 0, 0)
		:: CALLER != WORKER && is_held -> review = 1
		:: CALLER != WORKER && may_call && has_free_app -> commit_claim(c, 1, 1)
		:: CALLER != WORKER && !may_call && !is_held -> commit_claim(c, 1, 0)
		:: CALLER == APPLICATION && may_call && !has_free_app
		fi;
		check_ledger() }

	/* or roll back */
	:: atomic { session[c] == L_LOCKED && noisy ->
		make_noise;
		session[c] = L_IDLE;
		lock = 0 }
	od
}

/* --- the worker (src/ledger/lease.c, src/worker/batch.c) ------------------------ */

/* payguard_may_send() for a charge that is due, then mark_sending() and lease_item() */
inline take_charge(a)
{
	if
	:: !is_waiting || !is_current(a) || !(at[a].state == A_CLAIMED || at[a].state == A_SENDING ||
										  at[a].state == A_UNKNOWN) ->
		/* SEND_DROP */
		if
		:: at[a].state == A_UNKNOWN -> at[a].charge = X_RESTING
		:: else -> at[a].charge = X_NONE
		fi
	:: else ->
		if
		:: ask_first(a) && ASK_BY_REFERENCE ->
			/* SEND_ASK_FIRST */
			at[a].charge = X_RESTING;
			outbox_plan_query(a, OWN_NONE)
		:: ask_first(a) && !ASK_BY_REFERENCE && !(REFERENCE_UNIQUE || key_alive(a)) ->
			/* SEND_HOLD */
			at[a].charge = X_RESTING;
			review = 1
#ifndef WITHOUT_KEY_LIFE_AT_SENDING
		/* the key may have grown old since the resend was planned */
		:: !ask_first(a) && at[a].state != A_CLAIMED && HAS_KEY && !REFERENCE_UNIQUE &&
		   !key_alive(a) ->
			at[a].charge = X_RESTING;
			if
			:: may_ask(a) -> outbox_plan_query(a, OWN_NONE)
			:: else -> review = 1
			fi
#endif
		:: else ->
			/* SEND_NOW */
			charge_call[a] = C_LEASED;
#ifndef WITHOUT_MARK_SENDING
			at[a].state = A_SENDING;
			at[a].charge = X_SENDING;
			at[a].not_found = 0;	/* sent_at moves, and the settle time with it */
			flush()
#endif
		fi
	fi
}

/* T1 for a question; an application's claim whose lease lapsed is unknown first */
inline take_query(a)
{
	if
	:: at[a].by_application && at[a].state == A_SENDING ->
		door(a, S_LAPSE, R_UNKNOWN, OWN_NONE)
	:: else ->
		at[a].query = X_SENDING;
		query_call[a] = C_OUT
	fi
}

/* The application's lease is what the query waits for. */
#define lease_holds(a) \
	(at[a].by_application && at[a].state == A_SENDING && \
	 ((app[0].state != P_FREE && app[0].about == (a) && app[0].known && app[0].lease_live) || \
	  (app[APPS - 1].state != P_FREE && app[APPS - 1].about == (a) && app[APPS - 1].known && \
	   app[APPS - 1].lease_live)))

/* Lets a call's result, once booked, be forgotten. */
inline forget_call(call, result)
{
	call = C_IDLE;
	result = R_UNKNOWN
}

/* What the gateway says when it is told the truth */
#define told_by_gateway(a) \
	(gateway[a] == G_PAID -> R_PAID : (gateway[a] == G_DECLINED -> R_FAILED : R_PENDING))

/*
 * Is everything that may still reach the gateway under this reference over?
 * The settle time of "not found" is long enough for that (README, A1 to A3).
 */
inline find_quiet(a)
{
	quiet = wire[a] == 0 && charge_call[a] != C_LEASED && charge_call[a] != C_OUT &&
		gateway[a] == G_NONE;
	i = 0;
	do
	:: i < APPS ->
		if
		:: app[i].state == P_HOLDS && app[i].about == a && app[i].lease_live
#ifdef BEYOND_LONG_LEASE
		   && app[i].known
#endif
		   -> quiet = 0
		:: app[i].state != P_FREE && app[i].about == a && app[i].lease_live && app[i].known -> quiet = 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/*
 * A request is begun.  Without send-once libcurl repeats it by itself when a
 * reused connection dies.
 */
inline send_request(a)
{
	wire[a]++;
	sends[a] = (sends[a] < 3 -> sends[a] + 1 : 3);
	/* the same charge is sent twice only where the gateway sees one purchase */
	assert(HAS_KEY || switched || sends[a] == 1)
}

/* A request reaches the gateway. */
inline gateway_charge(a)
{
	wire[a]--;
	if
	:: gateway[a] != G_NONE && sees_one_purchase(a) ->
		printf("GATEWAY: a request of attempt %d arrives again: the first answer again\n", a + 1)
	:: gateway[a] == G_NONE || !sees_one_purchase(a) ->
		if
		:: gateway[a] = G_PAID; charged++
		:: gateway[a] = (gateway[a] == G_PAID -> G_PAID : G_DECLINED)
		:: gateway[a] == G_NONE -> gateway[a] = G_PENDING; was_pending[a] = 1
		fi;
		printf("GATEWAY: a request of attempt %d arrives: %e; money has moved %d times\n", a + 1, gateway[a], charged)
	fi;
	/* never charged twice */
	assert(charged <= 1)
}

/* The worker's and the gateway's side of one attempt. */
proctype Charge(byte a)
{
end:
	do
	/* ---- T1 */
	:: atomic { lock == 0 && at[a].charge == X_READY && charge_call[a] == C_IDLE ->
		printf("T1: the charge of attempt %d is due (attempt %e, order %e)\n", a + 1, at[a].state, status);
		take_charge(a);
		check_ledger() }

	:: atomic { lock == 0 && at[a].charge == X_LAPSED && charge_call[a] == C_IDLE ->
		printf("T1: the lease of the charge of attempt %d has lapsed: unknown\n", a + 1);
		door(a, S_LAPSE, R_UNKNOWN, OWN_CHARGE);
		at[a].charge = (at[a].charge == X_LAPSED -> X_RESTING : at[a].charge);
		check_ledger() }

	:: atomic { lock == 0 && at[a].query == X_READY && query_call[a] == C_IDLE &&
				!lease_holds(a) ->
		printf("T1: the query of attempt %d is due\n", a + 1);
		take_query(a);
		check_ledger() }

	/* ---- the call, with no transaction open */
	:: atomic { charge_call[a] == C_LEASED ->
		printf("the worker sends the charge of attempt %d\n", a + 1);
		send_request(a);
		charge_call[a] = C_OUT }

#ifdef WITHOUT_SEND_ONCE
	:: atomic { charge_call[a] == C_OUT && noisy ->
		printf("libcurl sends the charge of attempt %d once more\n", a + 1);
		make_noise;
		send_request(a) }
#endif

	/* it never left: the prereq count is 0 */
	:: atomic { charge_call[a] == C_LEASED && noisy ->
		printf("the charge of attempt %d does not leave: no connection\n", a + 1);
		make_noise;
		charge_call[a] = C_ANSWERED;
		charge_result[a] = R_NOT_SENT }

	/* the answer */
	:: atomic { charge_call[a] == C_OUT && wire[a] == 0 && gateway[a] != G_NONE ->
		printf("the worker gets the answer about attempt %d: %e\n", a + 1, gateway[a]);
		charge_call[a] = C_ANSWERED;
		charge_result[a] = told_by_gateway(a) }

	/* the answer is lost, or the time is over; the request may still be on its way */
	:: atomic { charge_call[a] == C_OUT && noisy ->
		printf("the answer about attempt %d is lost, or its time is over\n", a + 1);
		make_noise;
		charge_call[a] = C_ANSWERED;
		charge_result[a] = R_UNKNOWN }
	:: atomic { charge_call[a] == C_OUT && wire[a] == 0 && gateway[a] == G_NONE ->
		printf("no answer about attempt %d\n", a + 1);
		charge_call[a] = C_ANSWERED;
		charge_result[a] = R_UNKNOWN }

	/* the gateway: late or not, a request arrives, or is lost on the way */
	:: atomic { wire[a] > 0 -> gateway_charge(a) }
	:: atomic { wire[a] > 0 && noisy ->
		printf("a request of attempt %d is lost on its way\n", a + 1);
		make_noise;
		wire[a]-- }
	:: atomic { gateway[a] == G_PENDING ->
		if
		:: gateway[a] = G_PAID; charged++
		:: gateway[a] = G_DECLINED
		fi;
		printf("GATEWAY: pending attempt %d is decided: %e\n", a + 1, gateway[a]);
		assert(charged <= 1) }

	/* the query's answer: the truth */
	:: atomic { query_call[a] == C_OUT && gateway[a] != G_NONE && gateway[a] != G_PENDING ->
		query_call[a] = C_ANSWERED;
		query_result[a] = told_by_gateway(a);
		printf("the query of attempt %d is answered: %e\n", a + 1, query_result[a]) }
	:: atomic { query_call[a] == C_OUT && gateway[a] == G_PENDING && noisy ->
		make_noise;
		query_call[a] = C_ANSWERED;
		query_result[a] = R_PENDING;
		printf("the query of attempt %d is answered: %e\n", a + 1, query_result[a]) }
	:: atomic { query_call[a] == C_OUT && ASK_BY_REFERENCE && gateway[a] == G_NONE ->
		find_quiet(a);
		if
		:: quiet ->
			query_call[a] = C_ANSWERED;
			query_result[a] = R_NOT_FOUND_SETTLED;
			printf("the query of attempt %d is answered: not found, after the settle time\n", a + 1)
		:: else
		fi;
		quiet = 0 }
	/* not yet: too early, or the gateway's copies differ */
	:: atomic { query_call[a] == C_OUT && ASK_BY_REFERENCE && noisy ->
		make_noise;
		query_call[a] = C_ANSWERED;
		query_result[a] = R_NOT_FOUND;
		printf("the query of attempt %d is answered: %e\n", a + 1, query_result[a]) }
	/* once it is wrong even after the settle time */
	:: atomic { query_call[a] == C_OUT && ASK_BY_REFERENCE && gateway[a] != G_NONE && glitches > 0 ->
		glitches--;
		query_call[a] = C_ANSWERED;
		query_result[a] = R_NOT_FOUND_SETTLED;
		printf("the query of attempt %d is answered: %e\n", a + 1, query_result[a]) }
	:: atomic { query_call[a] == C_OUT && noisy ->
		make_noise;
		query_call[a] = C_ANSWERED;
		query_result[a] = R_UNKNOWN;
		printf("the query of attempt %d is answered: %e\n", a + 1, query_result[a]) }

	/* ---- T2 */
	:: atomic { lock == 0 && charge_call[a] == C_ANSWERED ->
		printf("T2: the answer about attempt %d is booked: %e\n", a + 1, charge_result[a]);
		door(a, S_ANSWER, charge_result[a], OWN_CHARGE);
		/* finish_item(): nothing was planned, so the bytes rest */
		at[a].charge = (at[a].charge == X_SENDING -> X_RESTING : at[a].charge);
		forget_call(charge_call[a], charge_result[a]);
		check_ledger() }

	:: atomic { lock == 0 && query_call[a] == C_ANSWERED ->
		printf("T2: the answer to the query of attempt %d is booked: %e\n", a + 1, query_result[a]);
		door(a, S_QUERY, query_result[a], OWN_QUERY);
		at[a].query = (at[a].query == X_SENDING -> X_NONE : at[a].query);
		forget_call(query_call[a], query_result[a]);
		check_ledger() }

	/* ---- callbacks: any number of times, or never; what they say may be old */
	:: atomic { lock == 0 && callbacks > 0 && gateway[a] != G_NONE ->
		printf("a callback about attempt %d\n", a + 1);
		callbacks--;
		if
		:: gateway[a] != G_PENDING -> door(a, S_CALLBACK, told_by_gateway(a), OWN_NONE)
		:: was_pending[a] -> door(a, S_CALLBACK, R_PENDING, OWN_NONE)
		fi;
		flush();
		check_ledger() }

	/* ---- time: payguard stops trusting the key before the gateway forgets it (A4) */
	:: atomic { KEY_IS_SHORT && sends[a] > 0 && !key_old[a] -> printf("payguard trusts the key of attempt %d no longer\n", a + 1); key_old[a] = 1 }
	:: atomic { key_old[a] && !key_forgotten[a] && wire[a] == 0 &&
				charge_call[a] != C_LEASED && charge_call[a] != C_OUT ->
		printf("GATEWAY: the key of attempt %d is forgotten\n", a + 1);
		key_forgotten[a] = 1 }
	od
}

/* --- an application that calls the gateway itself (src/api/record.c) ------------ */

#ifdef BEYOND_LATE_CALL
#define may_app_send(n)	true
#else
#define may_app_send(n)	(app[n].lease_live)
#endif

/* record_attempt(); a token of the lost timeline is not recognized */
inline report(n, res)
{
	printf("application %d reports %e of attempt %d (token known: %d, lease: %d)\n", n, res, app[n].about + 1, app[n].known, app[n].lease_live);
	if
	:: app[n].known ->
		x = app[n].about;
		door(x, S_APPLICATION, res, OWN_NONE);
		x = 0;
		flush()
	:: else
	fi
}

proctype Application(byte n)
{
end:
	do
	/* call the gateway, while the lease lasts */
	:: atomic { app[n].state == P_HOLDS && may_app_send(n) ->
		printf("application %d sends the charge of attempt %d (its lease: %d)\n", n, app[n].about + 1, app[n].lease_live);
		x = app[n].about;
		send_request(x);
		x = 0;
		app[n].left = 1;
		app[n].state = P_OUT }

	/* report that it was not sent, in time or late; then it is over */
	:: atomic { lock == 0 && app[n].state == P_HOLDS ->
		app[n].state = P_GONE;
		report(n, R_NOT_SENT);
		check_ledger() }

	/* report the answer, in time or late */
	:: atomic { lock == 0 && app[n].state == P_OUT && wire[app[n].about] == 0 &&
				gateway[app[n].about] != G_NONE ->
		app[n].state = P_GONE;
		report(n, told_by_gateway(app[n].about));
		check_ledger() }

	/* the answer is lost */
	:: atomic { lock == 0 && app[n].state == P_OUT && noisy ->
		make_noise;
		app[n].state = P_TOLD;
		report(n, R_UNKNOWN);
		check_ledger() }

	/* a clumsy one: another part of it, which knows of no call, says "not sent" */
	:: atomic { lock == 0 && app[n].left && app[n].state == P_TOLD && noisy ->
		make_noise;
		app[n].state = P_GONE;
		report(n, R_NOT_SENT);
		check_ledger() }
	:: atomic { lock == 0 && app[n].left && app[n].state == P_OUT && !app[n].lease_live && noisy ->
		make_noise;
		app[n].state = P_GONE;
		report(n, R_NOT_SENT);
		check_ledger() }

	/* it dies, and says nothing */
	:: atomic { (app[n].state == P_HOLDS || app[n].state == P_OUT || app[n].state == P_TOLD) ->
		printf("application %d dies\n", n);
		app[n].state = P_GONE }

	:: atomic { app[n].state != P_FREE && app[n].lease_live ->
		printf("the lease of application %d lapses\n", n);
		app[n].lease_live = 0 }
	od
}

/* --- crashes -------------------------------------------------------------------- */

/* the worker's memory is gone; its successor lets the leases lapse */
inline lose_worker(a)
{
	forget_call(charge_call[a], charge_result[a]);
	forget_call(query_call[a], query_result[a]);
	at[a].charge = (at[a].charge == X_SENDING -> X_LAPSED : at[a].charge);
	at[a].query = (at[a].query == X_SENDING -> X_READY : at[a].query)
}

inline lose_sessions()
{
	lock = 0;
	i = 0;
	do
	:: i < CLIENTS ->
		session[i] = L_IDLE;
		viewed_status[i] = O_CREATED;
		viewed_latest[i] = 0;
		i++
	:: else -> break
	od;
	i = 0
}

inline go_back()
{
	printf("the ledger is back at order %e, attempts %e and %e\n", kept_status, kept[0].state, kept[1].state);
	status = kept_status;
	latest = kept_latest;
	counted = kept_counted;
	review = kept_review;
	copy_attempt(at[0], kept[0]);
	copy_attempt(at[1], kept[1]);
	/* what was kept is never needed again */
	kept_status = O_CREATED;
	kept_latest = 0;
	kept_counted = 0;
	kept_review = 0;
	copy_attempt(kept[0], blank);
	copy_attempt(kept[1], blank);
	/* "not found" counts from the switch */
	at[0].not_found = 0;
	at[1].not_found = 0;
	i = 0;
	do
	:: i < APPS ->
		if
		:: app[i].state != P_FREE && !at[app[i].about].has_token -> app[i].known = 0
		:: else
		fi;
		i++
	:: else -> break
	od;
	i = 0
}

/*
 * The end of an attempt of which the gateway knows nothing is lost, and the
 * next attempt with it (README, A5).
 */
#ifdef BEYOND_LOST_UNSENT
#define loses_unsent	false
#else
#define loses_unsent	(latest == 2 && at[0].state == A_FAILED && gateway[0] == G_NONE && \
						 kept[0].state != A_FAILED)
#endif

proctype Faults()
{
end:
	do
	:: atomic { crashes > 0 && (charge_call[0] != C_IDLE || charge_call[1] != C_IDLE ||
								query_call[0] != C_IDLE || query_call[1] != C_IDLE) ->
		crashes--;
		printf("CRASH of the worker\n");
		lose_worker(0);
		lose_worker(1) }

#if FAULT == FAILOVER
	/* what the standby has when the primary is lost */
	:: atomic { !fault_done && kept_status == O_CREATED && kept_latest == 0 && status != O_CREATED ->
		printf("the standby has got everything up to here, and nothing after\n");
		keep_ledger() }
	:: atomic { !fault_done && !loses_unsent ->
		fault_done = 1;
		printf("CRASH of the server\n");
		go_back();
		lose_worker(0);
		lose_worker(1);
		lose_sessions();
#ifdef WITHOUT_DERIVED_KEYS
		drawn_again[0] = (at[0].state == A_NONE);
		drawn_again[1] = (at[1].state == A_NONE);
#endif
#ifndef BEYOND_LOST_ORDER
		switched = 1;
#endif
		skip }
#endif

#if FAULT == RESTART
	/* the wal writer flushes when it likes */
	:: atomic { !fault_done ->
		printf("the server flushes what was committed\n");
		keep_ledger() }
	:: atomic { !fault_done ->
		fault_done = 1;
		printf("CRASH of the server\n");
		go_back();
		lose_worker(0);
		lose_worker(1);
		lose_sessions() }
#endif
	od
}

/*
 * When nothing more can happen: the order is decided, or on the review list,
 * and all money that this ledger has heard of is booked.
 */
proctype Judge()
{
end:
	atomic {
		timeout ->
		assert(!is_waiting || review);
		assert(charged == 0 || status == O_PAID || review ||
			   (gateway[0] == G_PAID && at[0].state == A_NONE) ||
			   (gateway[1] == G_PAID && at[1].state == A_NONE))
	}
}

init
{
	atomic {
		blank.state = A_NONE;
		i = 0;
		do
		:: i < CLIENTS -> run Session(i); i++
		:: else -> break
		od;
		i = 0;
		run Charge(0);
		run Charge(1);
#if CALLER != WORKER
		do
		:: i < APPS -> run Application(i); i++
		:: else -> break
		od;
		i = 0;
#endif
		run Faults();
		run Judge()
	}
}
