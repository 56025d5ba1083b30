/*-------------------------------------------------------------------------
 *
 * crashpoint.c
 *	  Places where a test may have the process or the server die.
 *
 * See crashpoint.h.  System calls only, since a point may be inside one of
 * curl's callbacks or in the middle of anything else.
 *
 *-------------------------------------------------------------------------
 */
#include "core/crashpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the data directory, where every process of a server works. */
#define CRASHED_FILE	"payguard_crashed."

#define NTH_MAX			1000000

typedef enum CrashVictim
{
	VICTIM_PROCESS,
	VICTIM_POSTMASTER,
	VICTIM_SERVER
} CrashVictim;

static const char *const point_words[] = {
	"", "order_created", "claim_begun", "claim_moved", "send_committed", "send_handed_over",
	"answer_begun", "answer_read", "door_payment_booked", "door_evidence_stored",
	"door_events_next", "booked_not_committed", "booked_committed", "callback_stored",
	"parked_retried"
};

static const char *const victim_words[] = {"process", "postmaster", "server"};

/* What the setting says. */
typedef struct CrashPlan
{
	CrashPoint	point;
	int			nth;
	CrashVictim victim;
} CrashPlan;

CrashPoint	payguard_crash_armed = CRASH_NOWHERE;

static CrashPlan plan;
static int	times_reached;
static char crashed_file[64];

/*
 * The index of the word that text begins with and that ends there or at a
 * colon; -1: none.  Sets rest to what follows the colon, or NULL.
 */
static int
read_word(const char *text, const char *const words[], int count, const char **rest)
{
	size_t		length = strcspn(text, ":");

	*rest = text[length] == ':' ? text + length + 1 : NULL;
	for (int i = 0; i < count; i++)
	{
		if (strlen(words[i]) == length && strncmp(words[i], text, length) == 0)
			return i;
	}
	return -1;
}

/*
 * Read "point[:nth[:who]]"; false when it is not that.
 */
static bool
read_setting(const char *setting, CrashPlan *result)
{
	const char *rest;
	char	   *end;
	int			index;
	long		nth;

	result->nth = 1;
	result->victim = VICTIM_PROCESS;
	index = read_word(setting, point_words, sizeof(point_words) / sizeof(point_words[0]), &rest);
	result->point = (CrashPoint) index;
	if (index < 0 || (index == 0 && rest != NULL))
		return false;
	if (rest == NULL)
		return true;
	nth = strtol(rest, &end, 10);
	if (end == rest || nth < 1 || nth > NTH_MAX || (*end != '\0' && *end != ':'))
		return false;
	result->nth = (int) nth;
	if (*end == '\0')
		return true;
	index = read_word(end + 1, victim_words, sizeof(victim_words) / sizeof(victim_words[0]), &rest);
	result->victim = (CrashVictim) index;
	return index >= 0 && rest == NULL;
}

/*
 * Is this a text that payguard_crash_arm() understands?
 */
bool
payguard_crash_is_valid(const char *setting)
{
	CrashPlan	ignored;

	return read_setting(setting, &ignored);
}

/*
 * Do as the setting says from now on.
 */
void
payguard_crash_arm(const char *setting)
{
	CrashPlan	wanted;

	if (!read_setting(setting, &wanted))
		return;
	plan = wanted;
	times_reached = 0;
	snprintf(crashed_file, sizeof(crashed_file), "%s%s", CRASHED_FILE, point_words[plan.point]);
	payguard_crash_armed = wanted.point;
}

/*
 * The armed point is reached.  Whoever makes the file is the one that dies,
 * so that the next server does not die of the same setting.
 */
void
payguard_crash_reached(void)
{
	int			fd;

	if (++times_reached != plan.nth)
		return;
	payguard_crash_armed = CRASH_NOWHERE;
	fd = open(crashed_file, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd < 0)
		return;
	close(fd);

	if (plan.victim != VICTIM_PROCESS)
		kill(getppid(), SIGKILL);
	if (plan.victim != VICTIM_POSTMASTER)
		kill(getpid(), SIGKILL);
}
