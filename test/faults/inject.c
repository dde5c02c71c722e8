/*
 * inject.c
 *		Makes a chosen allocation of a backend fail.
 *
 * The library is preloaded into a server (LD_PRELOAD), so the server calls its
 * functions instead of those of the C library.  The library also has the SQL
 * functions inject_arm(what, n) and inject_fired().  After inject_arm(), the
 * backend's n-th call of the kind "what" fails, once:
 *
 *	memory	malloc() and realloc(): no memory
 *	shared	posix_fallocate() of a file in /dev/shm: no space left
 *	disk	pwrite() and similar functions on a file of a table: no space left
 */
#define _GNU_SOURCE
#include "postgres.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "fmgr.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(inject_arm);
PG_FUNCTION_INFO_V1(inject_fired);

extern void *__libc_malloc(size_t size);
extern void *__libc_realloc(void *ptr, size_t size);

typedef enum What
{
	MEMORY,
	SHARED,
	DISK,
	NOTHING
} What;

static volatile What what = NOTHING;
static volatile long left = 0;
static volatile bool fired = false;

/* Must this call fail? */
static bool
fails(What kind)
{
	if (what != kind || --left > 0)
		return false;
	what = NOTHING;
	fired = true;
	return true;
}

/* Does the file's path contain this text? */
static bool
is_at(int fd, const char *part)
{
	char		link[64];
	char		path[1024];
	ssize_t		length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return false;
	path[length] = '\0';
	return strstr(path, part) != NULL;
}

void *
malloc(size_t size)
{
	if (fails(MEMORY))
	{
		errno = ENOMEM;
		return NULL;
	}
	return __libc_malloc(size);
}

void *
realloc(void *ptr, size_t size)
{
	if (fails(MEMORY))
	{
		errno = ENOMEM;
		return NULL;
	}
	return __libc_realloc(ptr, size);
}

int
posix_fallocate(int fd, off_t offset, off_t length)
{
	static int	(*next) (int, off_t, off_t) = NULL;

	if (next == NULL)
		next = dlsym(RTLD_NEXT, "posix_fallocate");
	if (what == SHARED && is_at(fd, "/dev/shm") && fails(SHARED))
		return ENOSPC;
	return next(fd, offset, length);
}

ssize_t
pwrite(int fd, const void *data, size_t length, off_t offset)
{
	static ssize_t (*next) (int, const void *, size_t, off_t) = NULL;

	if (next == NULL)
		next = dlsym(RTLD_NEXT, "pwrite");
	if (what == DISK && is_at(fd, "/base/") && fails(DISK))
	{
		errno = ENOSPC;
		return -1;
	}
	return next(fd, data, length, offset);
}

ssize_t
pwritev(int fd, const struct iovec *data, int n, off_t offset)
{
	static ssize_t (*next) (int, const struct iovec *, int, off_t) = NULL;

	if (next == NULL)
		next = dlsym(RTLD_NEXT, "pwritev");
	if (what == DISK && is_at(fd, "/base/") && fails(DISK))
	{
		errno = ENOSPC;
		return -1;
	}
	return next(fd, data, n, offset);
}

/* The variants for large files do the same. */
int
posix_fallocate64(int fd, off_t offset, off_t length)
{
	return posix_fallocate(fd, offset, length);
}

ssize_t
pwrite64(int fd, const void *data, size_t length, off_t offset)
{
	return pwrite(fd, data, length, offset);
}

ssize_t
pwritev64(int fd, const struct iovec *data, int n, off_t offset)
{
	return pwritev(fd, data, n, offset);
}

Datum
inject_arm(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));

	fired = false;
	left = PG_GETARG_INT32(1);
	what = strcmp(name, "memory") == 0 ? MEMORY :
		strcmp(name, "shared") == 0 ? SHARED :
		strcmp(name, "disk") == 0 ? DISK : NOTHING;
	PG_RETURN_VOID();
}

/* Returns whether the call has failed. Afterwards no call will fail. */
Datum
inject_fired(PG_FUNCTION_ARGS)
{
	what = NOTHING;
	PG_RETURN_BOOL(fired);
}
