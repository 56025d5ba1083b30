/*-------------------------------------------------------------------------
 *
 * callbacks.c
 *	  Callbacks: queued, delayed, doubled, lost, sent until acknowledged.
 *
 * One thread drives all deliveries through one libcurl multi handle.  A
 * delivery's body and id never change; its webhook-timestamp and signature
 * are those of each try, as Standard Webhooks want it, so that a late retry
 * is not taken for a replay.  The times in the body are the event's.
 *
 *-------------------------------------------------------------------------
 */
#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "callbacks.h"
#include "clock.h"
#include "heap.h"
#include "random.h"
#include "settings.h"
#include "sign.h"

#define LONGEST_BACKOFF 5000
#define LONGEST_SLEEP 1000

typedef struct Delivery
{
	char		id[RANDOM_ID];
	char	   *body;
	int			tries;
	uint64_t	generation;
	struct curl_slist *headers; /* while it is under way */
} Delivery;

static pthread_t thread;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Heap queue;				/* of Delivery; guarded by lock */
static uint64_t generation;		/* guarded by lock */
static CURLM *multi;
static atomic_bool stopping;
static atomic_bool asleep;
static int	in_flight;			/* of the thread alone */

static _Atomic int64_t count_events;
static _Atomic int64_t count_sent;
static _Atomic int64_t count_acked;
static _Atomic int64_t count_failed;
static _Atomic int64_t count_lost;
static _Atomic int64_t count_doubled;
static _Atomic int64_t count_pending;

/* Is there somebody to call? */
bool
callbacks_wanted(void)
{
	char		url[SETTING_TEXT];

	settings_text(TEXT_CALLBACK_URL, url);
	return url[0] != '\0';
}

/* Forget a delivery */
static void
finish(Delivery *delivery)
{
	curl_slist_free_all(delivery->headers);
	free(delivery->body);
	free(delivery);
	count_pending--;
}

/* Queue a delivery that is due in wait ms; lock is held */
static void
enqueue(const char *id, const char *body, int64_t wait)
{
	Delivery   *delivery = calloc(1, sizeof(*delivery));

	strcpy(delivery->id, id);
	delivery->body = strdup(body);
	delivery->generation = generation;
	count_pending++;
	heap_push(&queue, clock_ticks() + wait, delivery);
}

/* How long this delivery of an event waits */
static int64_t
wait_of(const char *id, uint64_t copy)
{
	return settings.callback_delay +
		(int64_t) (random_unit(settings.seed, id, copy, "shuffle") *
				   (double) (settings.callback_shuffle + 1));
}

/*
 * Queue an event.  object is the charge or refund; plain: at once and
 * exactly once, whatever the settings say.
 */
void
callbacks_send(const char *object_id, int64_t number, const char *type,
			   int64_t occurred_at, const char *object, bool plain)
{
	char		when[CLOCK_TEXT];
	char		id[RANDOM_ID];
	char	   *body = answer_format("{\"type\": \"%s\", \"timestamp\": \"%s\", \"data\": %s}",
									 type, clock_text(occurred_at, when), object);

	random_id(id, "msg_", object_id, number);
	count_events++;
	pthread_mutex_lock(&lock);
	if (!plain && random_unit(settings.seed, id, 0, "lost") < settings.callback_lost)
		count_lost++;
	else
		enqueue(id, body, plain ? 0 : wait_of(id, 0));
	if (!plain && random_unit(settings.seed, id, 0, "duplicate") < settings.callback_duplicate)
	{
		count_doubled++;
		enqueue(id, body, wait_of(id, 1));
	}
	if (!plain && random_unit(settings.seed, id, 0, "again") < settings.callback_again)
	{
		char		other[RANDOM_ID];

		random_id(other, "msgb_", object_id, number);
		count_doubled++;
		enqueue(other, body, wait_of(id, 2));
	}
	pthread_mutex_unlock(&lock);
	free(body);
	if (atomic_exchange(&asleep, false))
		curl_multi_wakeup(multi);
}

/* Drop what the application answers with */
static size_t
discard(char *data, size_t size, size_t count, void *unused)
{
	(void) data;
	(void) unused;
	return size * count;
}

/* The headers of one try, signed now */
static struct curl_slist *
sign_headers(const Delivery *delivery)
{
	char		secrets[SETTING_TEXT];
	char		signature[SETTING_TEXT];
	char		line[SETTING_TEXT + 64];
	int64_t		timestamp = clock_now() / 1000;
	struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");

	headers = curl_slist_append(headers, "Expect:");
	snprintf(line, sizeof(line), "webhook-id: %s", delivery->id);
	headers = curl_slist_append(headers, line);
	snprintf(line, sizeof(line), "webhook-timestamp: %lld", (long long) timestamp);
	headers = curl_slist_append(headers, line);
	settings_text(TEXT_WEBHOOK_SECRET, secrets);
	if (sign_webhook(secrets, delivery->id, timestamp, delivery->body,
					 signature, sizeof(signature)) > 0)
	{
		snprintf(line, sizeof(line), "webhook-signature: %s", signature);
		headers = curl_slist_append(headers, line);
	}
	return headers;
}

/* Start one try */
static void
post(Delivery *delivery)
{
	char		url[SETTING_TEXT];
	CURL	   *handle = curl_easy_init();

	settings_text(TEXT_CALLBACK_URL, url);
	delivery->headers = sign_headers(delivery);
	delivery->tries++;
	curl_easy_setopt(handle, CURLOPT_URL, url);
	curl_easy_setopt(handle, CURLOPT_PROXY, "");
	curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(handle, CURLOPT_HTTP_VERSION, (long) CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, (long) settings.callback_timeout);
	curl_easy_setopt(handle, CURLOPT_HTTPHEADER, delivery->headers);
	curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE, (long) strlen(delivery->body));
	curl_easy_setopt(handle, CURLOPT_POSTFIELDS, delivery->body);
	curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, discard);
	curl_easy_setopt(handle, CURLOPT_PRIVATE, delivery);
	curl_multi_add_handle(multi, handle);
	in_flight++;
	count_sent++;
}

/* Start all that is due, as far as there is room; when the next one is due */
static int64_t
post_due(void)
{
	int64_t		due;

	pthread_mutex_lock(&lock);
	while (in_flight < settings.callback_parallel && heap_due(&queue) <= clock_ticks())
	{
		Delivery   *delivery = heap_pop(&queue);

		pthread_mutex_unlock(&lock);
		post(delivery);
		pthread_mutex_lock(&lock);
	}
	due = in_flight < settings.callback_parallel ? heap_due(&queue) : INT64_MAX;
	pthread_mutex_unlock(&lock);
	return due;
}

/* One try has ended: acknowledged, to be tried again, or given up */
static void
judge(Delivery *delivery, bool acknowledged)
{
	int64_t		backoff = settings.callback_backoff;

	if (acknowledged)
		count_acked++;
	for (int i = 1; i < delivery->tries && backoff < LONGEST_BACKOFF; i++)
		backoff *= 2;
	pthread_mutex_lock(&lock);
	if (acknowledged || delivery->generation != generation)
		finish(delivery);
	else if (delivery->tries >= settings.callback_tries)
	{
		count_failed++;
		finish(delivery);
	}
	else
		heap_push(&queue,
				  clock_ticks() + (backoff < LONGEST_BACKOFF ? backoff : LONGEST_BACKOFF),
				  delivery);
	pthread_mutex_unlock(&lock);
}

/* Take in all tries that have ended; were there any? */
static bool
collect(void)
{
	CURLMsg    *message;
	bool		any = false;
	int			left;

	while ((message = curl_multi_info_read(multi, &left)) != NULL)
	{
		CURL	   *handle = message->easy_handle;
		bool		answered = message->data.result == CURLE_OK;
		Delivery   *delivery;
		long		status = 0;

		curl_easy_getinfo(handle, CURLINFO_PRIVATE, (char **) &delivery);
		curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
		curl_multi_remove_handle(multi, handle);
		curl_easy_cleanup(handle);
		curl_slist_free_all(delivery->headers);
		delivery->headers = NULL;
		in_flight--;
		judge(delivery, answered && status >= 200 && status < 300);
		any = true;
	}
	return any;
}

/* The thread */
static void *
callbacks_main(void *unused)
{
	(void) unused;
	while (!stopping)
	{
		int			running;
		int64_t		wait;

		asleep = true;
		wait = post_due() - clock_ticks();
		curl_multi_perform(multi, &running);
		if (!collect() && wait > 0)
			curl_multi_poll(multi, NULL, 0,
							(int) (wait < LONGEST_SLEEP ? wait : LONGEST_SLEEP), NULL);
	}
	return NULL;
}

/* Start the thread */
void
callbacks_start(void)
{
	curl_global_init(CURL_GLOBAL_DEFAULT);
	multi = curl_multi_init();
	pthread_create(&thread, NULL, callbacks_main, NULL);
}

/* Add the counts to the summary */
void
callbacks_add_counts(json_t *summary)
{
	json_object_set_new(summary, "callbacks", json_integer(count_events));
	json_object_set_new(summary, "callbacks_sent", json_integer(count_sent));
	json_object_set_new(summary, "callbacks_acked", json_integer(count_acked));
	json_object_set_new(summary, "callbacks_pending", json_integer(count_pending));
	json_object_set_new(summary, "callbacks_failed", json_integer(count_failed));
	json_object_set_new(summary, "callbacks_lost", json_integer(count_lost));
	json_object_set_new(summary, "callbacks_doubled", json_integer(count_doubled));
}

/* Drop what is queued and start the counts anew */
void
callbacks_reset(void)
{
	Delivery   *delivery;

	pthread_mutex_lock(&lock);
	generation++;
	while ((delivery = heap_pop(&queue)) != NULL)
		finish(delivery);
	pthread_mutex_unlock(&lock);
	count_events = count_sent = count_acked = 0;
	count_failed = count_lost = count_doubled = 0;
}

/* End the thread; what is under way is given up */
void
callbacks_stop(void)
{
	stopping = true;
	curl_multi_wakeup(multi);
	pthread_join(thread, NULL);
}
