/*-------------------------------------------------------------------------
 *
 * report.c
 *	  The books as others read them: settlement files, lists, sums.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "ledger.h"
#include "report.h"
#include "settings.h"

#define DAY INT64_C(86400000)

/* How many decimals a currency has (ISO 4217) */
static int
decimals(const char *currency)
{
	static const char none[] = "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF";
	static const char three[] = "BHD IQD JOD KWD LYD OMR TND";
	static const char four[] = "CLF UYW";

	return strstr(none, currency) ? 0 : strstr(three, currency) ? 3 :
		strstr(four, currency) ? 4 : 2;
}

/* Write an amount in major units, exactly */
static void
print_major(FILE *out, int64_t minor, const char *currency)
{
	int			digits = decimals(currency);
	int64_t		unit = 1;

	for (int i = 0; i < digits; i++)
		unit *= 10;
	if (digits)
		fprintf(out, "%" PRId64 ".%0*" PRId64, minor / unit, digits, minor % unit);
	else
		fprintf(out, "%" PRId64, minor);
}

/* Write one line of a settlement file */
static void
print_line(FILE *out, const char *id, const char *reference, const char *charge_id,
		   const char *type, int64_t amount, const char *currency, int64_t fee,
		   const char *status, int64_t when)
{
	char		text[CLOCK_TEXT];

	fprintf(out, "%s,%s,%s,%s,", id, reference, charge_id, type);
	print_major(out, amount, currency);
	fprintf(out, ",%s,", currency);
	print_major(out, fee, currency);
	fprintf(out, ",%s,%s\n", status, clock_text(when, text));
}

/* Write the lines of one charge and of what became of it, as far as of that day */
static void
print_charge(FILE *out, const Charge *charge, int64_t start)
{
	const char *name = charge->reference->name;
	int64_t		fee = (charge->amount / 10000) * settings.fee +
		(charge->amount % 10000 * settings.fee + 5000) / 10000;

#define ON_DAY(when) ((when) >= start && (when) < start + DAY)
	if (charge->paid_at && ON_DAY(charge->paid_at))
		print_line(out, charge->id, name, "", "charge", charge->amount, charge->currency,
				   fee, "paid", charge->paid_at);
	if (charge->paid_at == 0 && charge->status == CHARGE_FAILED && ON_DAY(charge->occurred_at))
		print_line(out, charge->id, name, "", "charge", charge->amount, charge->currency,
				   0, "failed", charge->occurred_at);
	if (charge->reversed_at && ON_DAY(charge->reversed_at))
	{
		char		id[RANDOM_ID];

		random_id(id, "cb_", charge->id, 1);
		print_line(out, id, name, charge->id, "chargeback", charge->amount, charge->currency,
				   0, charge->status == CHARGE_REVERSED ? "succeeded" : "failed",
				   charge->reversed_at);
	}
	for (Refund *refund = charge->refunds; refund; refund = refund->next)
		if (refund->status != REFUND_PENDING && ON_DAY(refund->occurred_at))
			print_line(out, refund->id, refund->name, charge->id, "refund", refund->amount,
					   charge->currency, 0, refund_words[refund->status], refund->occurred_at);
}

/* The settlement file of a day (UTC); NULL if that is no day */
char *
report_settlement(const char *day)
{
	int64_t		start;
	char	   *csv;
	size_t		size;
	FILE	   *out;

	if (!clock_day(day, &start))
		return NULL;
	out = open_memstream(&csv, &size);
	fputs("transaction_id,reference,charge_id,type,amount,currency,fee,status,occurred_at\n", out);
	ledger_lock();
	for (Charge *charge = charges; charge; charge = charge->next)
		print_charge(out, charge, start);
	ledger_unlock();
	fclose(out);
	return csv;
}

/* What an order's charges come to */
typedef struct Judgement
{
	int64_t		charged;		/* sum of all that moved money */
	int64_t		refunded;
	int64_t		live;			/* charges paid and neither reversed nor refunded in full */
	const char *status;			/* of the newest charge */
	const char *currency;
} Judgement;

/* Add up an order */
static Judgement
judge(const Order *order)
{
	Judgement	sum = {0, 0, 0, "none", ""};
	bool		first = true;

	for (Reference *reference = order->last; reference; reference = reference->older)
		for (Charge *charge = reference->last; charge; charge = charge->older)
		{
			if (first)
			{
				sum.status = charge_words[charge->status];
				sum.currency = charge->currency;
			}
			first = false;
			sum.charged += charge->paid_at ? charge->amount : 0;
			sum.refunded += charge->refunded;
			sum.live += charge->status == CHARGE_PAID && charge->refunded < charge->amount;
		}
	return sum;
}

/* All orders, one a line */
char *
report_orders(void)
{
	char	   *csv;
	size_t		size;
	FILE	   *out = open_memstream(&csv, &size);

	fputs("order,reference_last,arrivals,charges,amount_minor,currency,status,refunded_minor\n", out);
	ledger_lock();
	for (Order *order = orders; order; order = order->hh.next)
	{
		Judgement	sum = judge(order);

		fprintf(out, "%s,%s,%" PRId64 ",%" PRId64 ",%" PRId64 ",%s,%s,%" PRId64 "\n",
				order->name, order->last->name, order->arrivals, order->charges,
				sum.charged, sum.currency, sum.status, sum.refunded);
	}
	ledger_unlock();
	fclose(out);
	return csv;
}

/* The sums of all currencies that were charged */
static json_t *
amounts(void)
{
	json_t	   *object = json_object();
	char		currency[4] = "";

	for (int i = 0; i < 26 * 26 * 26; i++)
	{
		if (totals[i].charged == 0)
			continue;
		currency[0] = (char) ('A' + i / 676);
		currency[1] = (char) ('A' + i / 26 % 26);
		currency[2] = (char) ('A' + i % 26);
		json_object_set_new(object, currency,
							json_pack("{sI sI}",
									  "charged", (json_int_t) totals[i].charged,
									  "refunded", (json_int_t) totals[i].refunded));
	}
	return object;
}

/* The whole ledger in a few numbers */
json_t *
report_summary(void)
{
	json_t	   *object;
	json_int_t	charged = 0;
	json_int_t	twice = 0;
	json_int_t	twice_ever = 0;

	ledger_lock();
	for (Order *order = orders; order; order = order->hh.next)
	{
		charged += order->charges > 0;
		twice_ever += order->charges > 1;
		if (order->charges > 1)
			twice += judge(order).live > 1;
	}
	object = json_pack("{sI sI sI sI sI sI sI sI sI sI sI sI so}",
					   "charge_arrivals", (json_int_t) tally.charge_arrivals,
					   "charges", (json_int_t) tally.charges,
					   "declined", (json_int_t) tally.declined,
					   "orders", (json_int_t) HASH_COUNT(orders),
					   "orders_charged", charged,
					   "orders_charged_twice", twice,
					   "orders_charged_twice_ever", twice_ever,
					   "refund_arrivals", (json_int_t) tally.refund_arrivals,
					   "refunds", (json_int_t) tally.refunds,
					   "replays", (json_int_t) tally.replays,
					   "queries", (json_int_t) tally.queries,
					   "closes", (json_int_t) tally.closes,
					   "amounts", amounts());
	ledger_unlock();
	return object;
}

/* A charge, with its refunds */
static json_t *
describe(const Charge *charge)
{
	char	   *text = render_charge(charge, FAULT_NONE);
	json_t	   *object = json_loads(text, 0, NULL);
	json_t	   *list = json_array();

	free(text);
	for (Refund *refund = charge->refunds; refund; refund = refund->next)
	{
		text = render_refund(refund, FAULT_NONE);
		json_array_append_new(list, json_loads(text, 0, NULL));
		free(text);
	}
	json_object_set_new(object, "moved_money", json_boolean(charge->paid_at != 0));
	json_object_set_new(object, "refunded", json_integer(charge->refunded));
	json_object_set_new(object, "refunds", list);
	return object;
}

/* One order with all its references and charges; NULL if there is none */
json_t *
report_order(const char *name)
{
	json_t	   *list = json_array();
	json_t	   *object = NULL;
	Order	   *order;

	ledger_lock();
	HASH_FIND_STR(orders, name, order);
	for (Reference *reference = order ? order->last : NULL; reference; reference = reference->older)
	{
		json_t	   *made = json_array();

		for (Charge *charge = reference->last; charge; charge = charge->older)
			json_array_append_new(made, describe(charge));
		json_array_append_new(list, json_pack("{ss sI sI so}", "reference", reference->name,
											  "arrivals", (json_int_t) reference->arrivals,
											  "queries", (json_int_t) reference->queries,
											  "charges", made));
	}
	if (order)
		object = json_pack("{ss sI sI sI sO}", "order", order->name,
						   "arrivals", (json_int_t) order->arrivals,
						   "charges", (json_int_t) order->charges,
						   "live", (json_int_t) judge(order).live, "references", list);
	ledger_unlock();
	json_decref(list);
	return object;
}
