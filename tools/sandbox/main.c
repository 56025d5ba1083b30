/*-------------------------------------------------------------------------
 *
 * main.c
 *	  payguard-sandbox: starts the parts, waits for a signal, ends them.
 *
 *-------------------------------------------------------------------------
 */
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "callbacks.h"
#include "faults.h"
#include "http.h"
#include "listener.h"
#include "settings.h"
#include "sign.h"
#include "timer.h"

#define LARGEST_TABLE 64

/* Write name: message and end */
static void
die(const char *what, const char *why)
{
	fprintf(stderr, "payguard-sandbox: %s: %s\n", what, why);
	exit(2);
}

/* Print all options */
static void
usage(void)
{
	const char *name;
	const char *argument;
	const char *help;

	printf("payguard-sandbox is a payment gateway for tests, on 127.0.0.1.\n\nOptions:\n");
	for (int i = 0; (help = settings_usage(i, &name, &argument)) != NULL; i++)
	{
		char		option[64];

		snprintf(option, sizeof(option), "%s%s%s", name, argument ? " " : "",
				 argument ? argument : "");
		for (char *c = option; *c && *c != ' '; c++)
			if (*c == '_')
				*c = '-';
		printf("  --%-28s %s\n", option, help);
	}
	printf("  --%-28s %s\n", "fault NAME=RATE", "a fault and how often; may be repeated");
	printf("  --%-28s %s\n\nFaults:\n ", "help", "this text");
	for (int i = FAULT_NONE + 1; i < FAULT_COUNT; i++)
		printf(" %s%s", fault_name(i), i % 4 ? "" : "\n ");
	printf("\nA prefix refund., query. or close. gives a fault to other calls than charges.\n");
}

/* --fault NAME=RATE */
static void
set_fault(const char *text)
{
	char	   *name = strdup(text);
	char	   *rate = strchr(name, '=');
	char	   *end = NULL;
	const char *wrong;
	double		value = 1;

	if (rate)
	{
		*rate++ = '\0';
		value = strtod(rate, &end);
		if (end == rate || *end)
			die(text, "the rate is not a number");
	}
	wrong = faults_set_rate(name, value);
	if (wrong)
		die(text, wrong);
	free(name);
}

/* Read the command line */
static void
read_options(int argc, char **argv)
{
	static char spelled[LARGEST_TABLE][64];
	struct option options[LARGEST_TABLE + 3];
	const char *name;
	const char *argument;
	const char *wrong;
	int			count = 0;
	int			found;
	int			which;

	memset(options, 0, sizeof(options));
	for (; settings_usage(count, &name, &argument) && count < LARGEST_TABLE; count++)
	{
		snprintf(spelled[count], sizeof(spelled[count]), "%s", name);
		for (char *c = spelled[count]; *c; c++)
			if (*c == '_')
				*c = '-';
		options[count].name = spelled[count];
		options[count].has_arg = argument ? required_argument : no_argument;
	}
	options[count] = (struct option) {"fault", required_argument, NULL, 'f'};
	options[count + 1] = (struct option) {"help", no_argument, NULL, 'h'};
	while ((found = getopt_long(argc, argv, "h", options, &which)) != -1)
	{
		if (found == 'h')
		{
			usage();
			exit(0);
		}
		if (found == '?')
			exit(2);
		if (found == 'f')
		{
			set_fault(optarg);
			continue;
		}
		wrong = settings_set(spelled[which], optarg ? optarg : "true", false);
		if (wrong)
			die(spelled[which], wrong);
	}
	if (optind < argc)
		die(argv[optind], "not an option");
}

/* Write a port to the file that a setting names: whole or not at all */
static void
write_port(SettingText which, int port)
{
	char		path[SETTING_TEXT];
	char		draft[SETTING_TEXT + 8];
	FILE	   *file;

	settings_text(which, path);
	if (path[0] == '\0')
		return;
	snprintf(draft, sizeof(draft), "%s.draft", path);
	file = fopen(draft, "w");
	if (file == NULL || fprintf(file, "%d\n", port) < 0 || fclose(file) != 0 ||
		rename(draft, path) != 0)
	{
		perror(path);
		exit(2);
	}
}

/* Prepare the process: descriptors, signals, the parent's death */
static void
prepare(sigset_t *ends)
{
	struct rlimit limit;
	pid_t		parent = getppid();

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
	{
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(ends);
	sigaddset(ends, SIGTERM);
	sigaddset(ends, SIGINT);
	pthread_sigmask(SIG_BLOCK, ends, NULL);
	if (settings.die_with_parent)
	{
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			exit(0);
	}
}

/* The end must not hang: a second after the signal it comes anyway */
static void
end_anyway(int unused)
{
	(void) unused;
	_exit(0);
}

/* Start everything, wait for SIGTERM or SIGINT, end everything */
int
main(int argc, char **argv)
{
	char		secrets[SETTING_TEXT];
	struct MHD_Daemon *server;
	struct MHD_Daemon *control = NULL;
	sigset_t	ends;
	int			signal_number;
	int			port;
	int			control_port;
	int			socket;

	read_options(argc, argv);
	settings_text(TEXT_WEBHOOK_SECRET, secrets);
	if (sign_check_secrets(secrets))
		die("webhook-secret", sign_check_secrets(secrets));
	prepare(&ends);
	timer_start();
	callbacks_start();
	server = http_start((unsigned) settings.threads);
	socket = listener_open((int) settings.port, &port);
	if (server == NULL || socket < 0)
	{
		perror("payguard-sandbox: cannot listen");
		exit(2);
	}
	listener_start(socket, port, server);
	if (settings.control_port >= 0)
	{
		socket = listener_open((int) settings.control_port, &control_port);
		control = socket >= 0 ? http_start_control(socket) : NULL;
		if (control == NULL)
		{
			perror("payguard-sandbox: cannot listen on the control port");
			exit(2);
		}
		write_port(TEXT_CONTROL_PORT_FILE, control_port);
	}
	write_port(TEXT_PORT_FILE, port);
	printf("payguard-sandbox listens on 127.0.0.1:%d\n", port);
	fflush(stdout);

	sigwait(&ends, &signal_number);
	signal(SIGALRM, end_anyway);
	alarm(1);
	listener_stop();
	timer_stop();
	callbacks_stop();
	MHD_stop_daemon(server);
	if (control)
		MHD_stop_daemon(control);
	return 0;
}
