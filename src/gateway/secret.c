/*-------------------------------------------------------------------------
 *
 * secret.c
 *	  Reads secrets from files, so that none enters a statement or a dump.
 *
 * No error may hold a byte of a file's content.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/errcode.h"
#include "gateway/options.h"
#include "gateway/secret.h"
#include "storage/fd.h"

static void
refuse_file(const char *gateway, const char *path, const char *reason)
{
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_GATEWAY),
			 errmsg("could not use secret file \"%s\" of gateway \"%s\": %s",
					path, gateway, reason),
			 errhint("The file must be readable by the server and hold the secret on one line.")));
}

static void
remember(SecretFile *file, const struct stat *status)
{
	file->size = status->st_size;
	file->modified = status->st_mtim;
	file->inode = status->st_ino;
}

/*
 * Read a secret; blanks and newlines at its end are cut off.  file->path must
 * be allocated by the caller.
 */
char *
payguard_secret_read(const char *gateway, const char *path, SecretFile *file)
{
	char		content[SECRET_MAX_SIZE + 1];
	struct stat status;
	ssize_t		length;
	int			fd;
	ssize_t		i;

	/* Not to block on a fifo, and to know what we read */
	fd = OpenTransientFile(path, O_RDONLY | O_NONBLOCK | PG_BINARY);
	if (fd < 0)
		refuse_file(gateway, path, strerror(errno));
	if (fstat(fd, &status) != 0)
		refuse_file(gateway, path, strerror(errno));
	if (!S_ISREG(status.st_mode))
		refuse_file(gateway, path, "it is not a regular file");
	length = read(fd, content, sizeof(content));
	if (length < 0)
		refuse_file(gateway, path, strerror(errno));
	CloseTransientFile(fd);
	if (length > SECRET_MAX_SIZE)
		refuse_file(gateway, path, "it is too large");
	while (length > 0 && (content[length - 1] == '\n' || content[length - 1] == '\r' ||
						  content[length - 1] == ' '))
		length--;
	if (length == 0)
		refuse_file(gateway, path, "it is empty");
	for (i = 0; i < length; i++)
		if ((unsigned char) content[i] < 0x20 || content[i] == 0x7f)
			refuse_file(gateway, path, "it contains a control character");
	remember(file, &status);
	return pnstrdup(content, length);
}

/* Is the file as it was when it was read? */
bool
payguard_secret_unchanged(const SecretFile *file)
{
	struct stat status;

	if (file->path == NULL)
		return true;
	if (stat(file->path, &status) != 0)
		return false;
	return status.st_size == file->size &&
		status.st_mtim.tv_sec == file->modified.tv_sec &&
		status.st_mtim.tv_nsec == file->modified.tv_nsec &&
		(unsigned long long) status.st_ino == file->inode;
}
