/*
 * stall.h
 *		Stops a backend at a point that a test chooses (src/base/tools.h).
 *
 * A test creates a file fairq_stall.PID in the data directory, with a kind and
 * a number n (stall.py).  At the n-th point of that kind the backend renames
 * the file, and waits until it is gone.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"

static inline void
fairq_stall(const char *kind)
{
	static struct stat counted;	/* the file whose points are counted */
	static int	passed = 0;
	struct stat found;
	char		asked[64];
	char		done[64];
	char		asked_for[16];
	int			n;
	FILE	   *file;

	snprintf(asked, sizeof(asked), "fairq_stall.%d", MyProcPid);
	file = fopen(asked, "r");
	if (file == NULL)
		return;
	if (fscanf(file, "%15s %d", asked_for, &n) != 2 ||
		fstat(fileno(file), &found) != 0)
		n = 0;
	fclose(file);
	if (n == 0 || strcmp(kind, asked_for) != 0)
		return;
	if (found.st_ino != counted.st_ino ||
		found.st_mtim.tv_sec != counted.st_mtim.tv_sec ||
		found.st_mtim.tv_nsec != counted.st_mtim.tv_nsec)
		passed = 0;
	counted = found;
	if (++passed < n)
		return;
	snprintf(done, sizeof(done), "fairq_stalled.%d", MyProcPid);
	rename(asked, done);
	while (access(done, F_OK) == 0)
		pg_usleep(1000);
}
