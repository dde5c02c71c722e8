/*
 * clock.c
 *		Steps the wall clock of a server, for tests.
 *
 * The library is preloaded into a server (LD_PRELOAD), and replaces functions of the
 * C library.  The file that FAIRQ_CLOCK names holds an int64: the microseconds that
 * are added to the system's wall clock.  The monotonic clock does not change.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t
offset(void)
{
	static const volatile int64_t *at = NULL;
	static const int64_t none = 0;

	if (at == NULL)
	{
		const char *path = getenv("FAIRQ_CLOCK");
		int			fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
		void	   *map = fd < 0 ? MAP_FAILED :
			mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);

		if (fd >= 0)
			close(fd);
		at = map == MAP_FAILED ? &none : map;
	}
	return *at;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	static int	(*real) (struct timeval *restrict, void *restrict) = NULL;
	int			result;
	int64_t		us;

	if (real == NULL)
		real = dlsym(RTLD_NEXT, "gettimeofday");
	result = real(tv, tz);
	us = (int64_t) tv->tv_sec * 1000000 + tv->tv_usec + offset();
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return result;
}

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	static int	(*real) (clockid_t, struct timespec *) = NULL;
	int			result;
	int64_t		ns;

	if (real == NULL)
		real = dlsym(RTLD_NEXT, "clock_gettime");
	result = real(clock, ts);
	if (clock == CLOCK_REALTIME)
	{
		ns = (int64_t) ts->tv_sec * 1000000000 + ts->tv_nsec + offset() * 1000;
		ts->tv_sec = ns / 1000000000;
		ts->tv_nsec = ns % 1000000000;
	}
	return result;
}
