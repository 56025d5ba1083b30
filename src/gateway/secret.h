/*-------------------------------------------------------------------------
 *
 * secret.h
 *	  Secrets in files.
 *
 * Private to gateway/.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_GATEWAY_SECRET_H
#define PAYGUARD_GATEWAY_SECRET_H

#include <time.h>

/* A file whose content was read, as it was then. */
typedef struct SecretFile
{
	char	   *path;			/* NULL: none is used */
	long long	size;
	struct timespec modified;
	unsigned long long inode;
} SecretFile;

/* Read a secret, in the current memory context; PG004. */
extern char *payguard_secret_read(const char *gateway, const char *path, SecretFile *file);

/* Is the file as it was when it was read? */
extern bool payguard_secret_unchanged(const SecretFile *file);

#endif							/* PAYGUARD_GATEWAY_SECRET_H */
