/*-------------------------------------------------------------------------
 *
 * ledger.c
 *	  The gateway's own books: the rows, and how they are found.
 *
 * These books judge every test: a charge is counted when money moved,
 * whatever the client was told.
 *
 *-------------------------------------------------------------------------
 */
#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"
#include "ledger.h"

Order	   *orders;
Reference  *references;
Refund	   *refunds;
Charge	   *charges;
Tally		tally;
Total		totals[26 * 26 * 26];
uint64_t	generation;

static Charge *newest;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Take the lock of the books */
void
ledger_lock(void)
{
	pthread_mutex_lock(&lock);
}

/* Release it */
void
ledger_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

/* The sums of a currency; its three letters are the index */
Total *
total_of(const char *currency)
{
	return &totals[((currency[0] - 'A') * 26 + currency[1] - 'A') * 26 + currency[2] - 'A'];
}

/*
 * Length of the order's name in a reference: without a trailing _r2, _r3, ...
 * (_r0 and _r1 are no suffixes of later attempts and stay).
 */
static size_t
order_length(const char *name)
{
	size_t		length = strlen(name);
	size_t		digits = length;

	while (digits > 0 && isdigit((unsigned char) name[digits - 1]))
		digits--;
	if (digits == length || digits < 3 || name[digits] == '0' ||
		name[digits - 1] != 'r' || name[digits - 2] != '_' ||
		strcmp(name + digits, "1") == 0)
		return length;
	return digits - 2;
}

/* The order that a reference belongs to, made if it is new */
static Order *
order_of(const char *name)
{
	size_t		length = order_length(name);
	Order	   *order;

	HASH_FIND(hh, orders, name, length, order);
	if (order == NULL)
	{
		order = calloc(1, sizeof(*order));
		order->name = strndup(name, length);
		HASH_ADD_KEYPTR(hh, orders, order->name, length, order);
	}
	return order;
}

/* A reference that is known, or NULL */
Reference *
find_reference(const char *name)
{
	Reference  *reference;

	HASH_FIND_STR(references, name, reference);
	return reference;
}

/* A reference, made if it is new */
static Reference *
need_reference(const char *name)
{
	Reference  *reference = find_reference(name);

	if (reference == NULL)
	{
		reference = calloc(1, sizeof(*reference));
		reference->name = strdup(name);
		reference->order = order_of(name);
		reference->older = reference->order->last;
		reference->order->last = reference;
		HASH_ADD_KEYPTR(hh, references, reference->name, strlen(name), reference);
	}
	return reference;
}

/* Count a charge request; how many came for this reference, this one included */
int64_t
ledger_arrive(const char *name)
{
	Reference  *reference;
	int64_t		arrivals;

	ledger_lock();
	reference = need_reference(name);
	reference->order->arrivals++;
	tally.charge_arrivals++;
	arrivals = ++reference->arrivals;
	ledger_unlock();
	return arrivals;
}

/* A refund by its reference; made empty if it is new and make says so */
Refund *
find_refund(const char *name, bool make)
{
	Refund	   *refund;

	HASH_FIND_STR(refunds, name, refund);
	if (refund == NULL && make)
	{
		refund = calloc(1, sizeof(*refund));
		refund->name = strdup(name);
		random_id(refund->id, "re_", name, 1);
		HASH_ADD_KEYPTR(hh, refunds, refund->name, strlen(name), refund);
	}
	return refund;
}

/* Enter a charge that is pending and announced to nobody */
Charge *
make_charge(const char *name, int64_t amount, const char *currency)
{
	Reference  *reference = need_reference(name);
	Charge	   *charge = calloc(1, sizeof(*charge));
	uint64_t	number = 1;

	for (Charge *other = reference->last; other; other = other->older)
		number++;
	random_id(charge->id, "ch_", name, number);
	charge->reference = reference;
	charge->older = reference->last;
	reference->last = charge;
	charge->amount = amount;
	memcpy(charge->currency, currency, 4);
	if (newest)
		newest->next = charge;
	else
		charges = charge;
	newest = charge;
	return charge;
}

/* Free all orders and references */
static void
free_orders(void)
{
	Order	   *order;
	Order	   *next_order;
	Reference  *reference;
	Reference  *next_reference;

	HASH_ITER(hh, references, reference, next_reference)
	{
		HASH_DEL(references, reference);
		free(reference->name);
		free(reference);
	}
	HASH_ITER(hh, orders, order, next_order)
	{
		HASH_DEL(orders, order);
		free(order->name);
		free(order);
	}
}

/* Forget everything.  Timers that were set before see another generation. */
void
ledger_reset(void)
{
	Refund	   *refund;
	Refund	   *next;

	ledger_lock();
	generation++;
	keys_reset();
	HASH_ITER(hh, refunds, refund, next)
	{
		HASH_DEL(refunds, refund);
		free(refund->name);
		free(refund);
	}
	while (charges)
	{
		Charge	   *gone = charges;

		charges = gone->next;
		free(gone);
	}
	newest = NULL;
	free_orders();
	memset(&tally, 0, sizeof(tally));
	memset(totals, 0, sizeof(totals));
	ledger_unlock();
}
