/*-------------------------------------------------------------------------
 *
 * url.c
 *	  Checks the addresses of gateways.
 *
 * An address is written by an administrator and holds no credentials; what is
 * not needed in one is refused, since every reader of URLs reads the odd ones
 * in its own way.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/options.h"

/* Are these four numbers 127.a.b.c, written in the usual way? */
static bool
is_loopback_address(const char *host)
{
	int			part[4];
	char		after;
	char		again[16];

	if (sscanf(host, "%3d.%3d.%3d.%3d%c", &part[0], &part[1], &part[2], &part[3], &after) != 4)
		return false;
	if (part[0] != 127 || part[1] < 0 || part[1] > 255 || part[2] < 0 || part[2] > 255 ||
		part[3] < 0 || part[3] > 255)
		return false;
	snprintf(again, sizeof(again), "%u.%u.%u.%u", part[0] & 255, part[1] & 255,
			 part[2] & 255, part[3] & 255);
	return strcmp(again, host) == 0;
}

/* Only characters that a host name, an address or a port is made of. */
static const char *
check_authority(const char *authority, bool *is_loopback)
{
	const char *port;
	char	   *host;
	size_t		i;

	if (authority[0] == '[')
	{
		const char *end = strchr(authority, ']');

		if (end == NULL || strspn(authority + 1, "0123456789abcdefABCDEF:.") !=
			(size_t) (end - authority - 1) || end == authority + 1)
			return "its IPv6 address is not valid";
		host = pnstrdup(authority + 1, end - authority - 1);
		port = end + 1;
		*is_loopback = strcmp(host, "::1") == 0;
	}
	else
	{
		size_t		length = strcspn(authority, ":");

		host = pnstrdup(authority, length);
		port = authority + length;
		if (length == 0)
			return "it has no host";
		for (i = 0; i < length; i++)
			if (!(host[i] >= 'a' && host[i] <= 'z') && !(host[i] >= 'A' && host[i] <= 'Z') &&
				!(host[i] >= '0' && host[i] <= '9') && host[i] != '-' && host[i] != '.' &&
				host[i] != '_')
				return "its host has a character that may not stand there";
		*is_loopback = pg_strcasecmp(host, "localhost") == 0 || is_loopback_address(host);
	}
	if (*port == '\0')
		return NULL;
	if (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1) ||
		strlen(port + 1) > 5 || atoi(port + 1) < 1 || atoi(port + 1) > 65535)
		return "its port is not valid";
	return NULL;
}

/*
 * NULL when the URL is good, else what is wrong with it (a clause that can
 * follow "because").  *is_plain_remote: it is http:// to another machine.
 */
const char *
payguard_url_check(const char *url, bool *is_plain_remote)
{
	const char *authority;
	const char *p;
	const char *error;
	bool		is_plain;
	bool		is_loopback = false;

	*is_plain_remote = false;
	if (strlen(url) > 2000)
		return "it is too long";
	for (p = url; *p != '\0'; p++)
		if ((unsigned char) *p <= 0x20 || (unsigned char) *p > 0x7e || strchr("\"<>\\^`{|}", *p))
			return "it has a character that may not stand in a URL";
	is_plain = strncmp(url, "http://", 7) == 0;
	if (!is_plain && strncmp(url, "https://", 8) != 0)
		return "it does not begin with https:// or http://";
	if (strpbrk(url, "?#") != NULL)
		return "it has a query or a fragment";
	authority = url + (is_plain ? 7 : 8);
	p = authority + strcspn(authority, "/");
	if (memchr(authority, '@', p - authority) != NULL)
		return "it has a user name or a password";
	error = check_authority(pnstrdup(authority, p - authority), &is_loopback);
	*is_plain_remote = is_plain && !is_loopback;
	return error;
}
