/*-------------------------------------------------------------------------
 *
 * trial.c
 *	  Judges facts so that one that cannot be judged stops nothing else.
 *
 * Judging touches tables that others may have given triggers and constraints
 * of their own, so it can fail for reasons that have nothing to do with the
 * fact.  Where such a failure would take other work with it, or lose the
 * fact, the judging runs in a subtransaction and the fact is parked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "ledger/ledger.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

/* What payguard_book_fact() runs in its subtransaction. */
typedef struct FactTrial
{
	const Evidence *evidence;
	EvidenceOutcome *outcome;
} FactTrial;

/*
 * An error that says nothing about the work: it is raised again, and whoever
 * began the transaction repeats it.
 */
static bool
is_transient(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case MAKE_SQLSTATE('4', '0', '0', '0', '0'):	/* serialization, deadlock */
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'):	/* out of resources */
		case MAKE_SQLSTATE('5', '5', '0', '0', '0'):	/* lock timeouts */
		case MAKE_SQLSTATE('5', '7', '0', '0', '0'):	/* cancel, shutdown */
		case MAKE_SQLSTATE('5', '8', '0', '0', '0'):	/* input, output */
		case MAKE_SQLSTATE('2', '5', '0', '0', '0'):	/* read-only, ended transaction */
			return true;
		default:
			return false;
	}
}

/*
 * Run work in a subtransaction of the ledger scope that the caller is in.
 * Returns 0, or the SQLSTATE of the error that undid it; the error's message
 * is logged without statement and context, since those may quote values.
 */
int
payguard_ledger_try(void (*work) (void *arg), void *arg, const char *what)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile int sqlstate = 0;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		work(arg);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (is_transient(error->sqlerrcode))
			ReThrowError(error);
		sqlstate = error->sqlerrcode;
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("payguard could not %s: %s", what, error->message),
				 errdetail("The SQLSTATE is %s.", unpack_sql_state(error->sqlerrcode)),
				 errhidestmt(true), errhidecontext(true)));
		FreeErrorData(error);
	}
	PG_END_TRY();
	return sqlstate;
}

/*
 * The judging of one fact.
 */
static void
judge_fact(void *arg)
{
	FactTrial  *trial = arg;

	payguard_apply_evidence(trial->evidence, trial->outcome);
}

/*
 * Judge and store one fact; when its judging fails, store it parked.  Returns
 * whether it was judged.
 */
bool
payguard_book_fact(const Evidence *evidence, EvidenceOutcome *outcome)
{
	FactTrial	trial = {evidence, outcome};
	int			sqlstate = payguard_ledger_try(judge_fact, &trial, "judge a fact, which is parked");

	if (sqlstate == 0)
		return true;
	payguard_park_evidence(evidence, sqlstate, outcome);
	return false;
}
