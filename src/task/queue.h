/*
 * queue.h
 *		Queues, their settings and privileges, cached in the backend.
 */
#ifndef FAIRQ_QUEUE_H
#define FAIRQ_QUEUE_H

#include "nodes/pg_list.h"
#include "storage/lockdefs.h"
#include "utils/hsearch.h"

#include "lane.h"

/* The channel "fairq.<queue>" must fit into a name. */
#define FAIRQ_MAX_QUEUE_NAME 57
#define FAIRQ_MAX_GROUP_KEY 1024
#define FAIRQ_MAX_WEIGHT 1000

/* Privileges on a queue; these are bits. */
typedef enum FairqPrivilege
{
	FAIRQ_PRIV_ENQUEUE = 1,
	FAIRQ_PRIV_WORK = 2,		/* comprises FAIRQ_PRIV_MONITOR */
	FAIRQ_PRIV_MANAGE = 4,		/* comprises the others */
	FAIRQ_PRIV_MONITOR = 8		/* to see queues, groups and tasks, without
								 * data from a task's producer or worker */
} FairqPrivilege;

#define FAIRQ_PRIV_ANY \
	(FAIRQ_PRIV_ENQUEUE | FAIRQ_PRIV_WORK | FAIRQ_PRIV_MONITOR)

typedef struct FairqGrant
{
	Oid			role;
	FairqPrivilege privilege;
} FairqGrant;

/* The settings in effect for a group, or for all groups of a tenant. */
typedef struct FairqSetting
{
	int32		weight;			/* weight, from 1 to FAIRQ_MAX_WEIGHT */
	int32		limit;			/* maximum number of running tasks, or
								 * FAIRQ_NO_LIMIT; 0: paused */
	FairqPace	pace;			/* pace at which tasks may start */
	TimestampTz held_until;		/* time before which no task starts;
								 * DT_NOBEGIN: none */
} FairqSetting;

/* The settings of the groups of a queue. */
typedef struct FairqSettings
{
	/* settings that groups get from the queue */
	struct
	{
		FairqSetting setting;	/* setting of groups without their own
								 * settings */
		double		per;		/* span of the rates in microseconds */
		int32		burst;		/* tasks that may start at once */
		uint64		version;	/* number of times that these settings were
								 * read */
	}			others;

	HTAB	   *own;			/* settings of groups that have their own, by
								 * group number; NULL: no group has */
	int32		nlimiting;		/* number of groups that have a limit, rate or
								 * hold of their own, or are paused */
	int32		npaused;		/* number of groups that are paused */

	/* groups whose settings our own transaction has changed */
	struct
	{
		int			n;			/* number of these groups; their settings are
								 * not read yet */
		int			max;		/* number of groups for which there is room */
		int32	   *group_nos;	/* their numbers; NULL: no room yet */
	}			changed;
} FairqSettings;

/* The versions at which a queue's settings were read. */
typedef struct FairqAsOf
{
	uint64		version;		/* version of the settings */
	uint64		unknown;		/* "settings" of the domain, a number of
								 * changes */
	uint64		reading;		/* count of readings in this backend; 0:
								 * invalid */
	uint64		groups;			/* count of readings of the settings of all
								 * groups */
} FairqAsOf;

typedef struct FairqQueue
{
	int32		id;				/* id of the queue; hash key */
	FairqAsOf	as_of;			/* versions at which the queue's settings were
								 * read */
	char		name[FAIRQ_MAX_QUEUE_NAME + 1]; /* name of the queue */
	int64		block_length;	/* length of a block: the maximum number of
								 * groups */
	bool		paused;			/* true: no task of the queue may start */
	bool		limited;		/* true: the queue or some group has a limit or
								 * rate */
	int32		max_running;	/* how many tasks of the queue may run, or
								 * FAIRQ_NO_LIMIT */

	/* when tasks may start */
	struct
	{
		FairqPace	pace;		/* pace of the whole queue */
		TimestampTz held_until; /* time before which no task starts;
								 * DT_NOBEGIN: none */
	}			starts;

	/* how long tasks run, and when they run again */
	struct
	{
		Interval	lease;		/* lease if a pop specifies none */
		int64		max_run_time;	/* longest time from a claim to the end of
									 * its lease, in microseconds; 0: none */
		int32		max_attempts;	/* default limit of attempts */
		int64		backoff;	/* delay of the first retry in microseconds */
		int64		backoff_max;	/* longest delay of a retry in
									 * microseconds */
		bool		in_order;	/* true: a group waits for its task to be
								 * retried */
	}			retries;

	bool		retains;		/* true: completed, cancelled and expired tasks
								 * are archived */
	bool		notify;			/* true: NOTIFY is sent */

	/* shares of the lanes, and the unit of fairness */
	struct
	{
		FairqFairBy fair_by;	/* the unit in which all groups of a lane get
								 * equal amounts */
		char		separator;	/* character between tenant and user in a
								 * group's key; 0: there are no tenants */
		bool		any;		/* true: some lane has a share */
		int32		of[FAIRQ_PRIORITIES];	/* share of each lane; 0: none */
	}			shares;

	FairqSettings groups;		/* settings of the groups */

	/* privileges on the queue */
	struct
	{
		int			n;			/* number of grants */
		FairqGrant *list;		/* privileges, one for each row */
	}			grants;

	FairqHints *hints;			/* the queue's hints in shared memory; NULL:
								 * there is no room for them (queue.c) */
} FairqQueue;

extern FairqQueue *fairq_queue_use(text *name, int any_privilege,
								   LOCKMODE lockmode);
extern FairqQueue *fairq_queue_use_if_exists(text *name, int any_privilege,
											 LOCKMODE lockmode,
											 bool must_have);
extern FairqQueue *fairq_queue_to_view(text *name);
extern void fairq_no_such_queue(text *name, bool skip);
extern FairqQueue *fairq_queue_by_id(int32 id, bool must_have);
extern FairqQueue *fairq_queue_if_hints(int32 id, int any_privilege);
extern FairqQueue *fairq_queue_use_id(int32 id, int any_privilege, bool wait);
extern bool fairq_may(const FairqQueue *queue, int any);
extern bool fairq_queue_id_try_lock(int32 id, LOCKMODE lockmode);
extern void fairq_queue_id_unlock(int32 id, LOCKMODE lockmode);
extern void fairq_queue_changed(bool all);
extern void fairq_queue_group_changed(int32 queue_id, int32 group_no);
extern void fairq_queues_settle(bool committed, bool all);
extern const FairqSetting *fairq_group_setting(const FairqQueue *queue,
											   int32 group_no);
extern const FairqSetting *fairq_tenant_setting(const FairqQueue *queue,
												int32 tenant);
extern void fairq_notify(const FairqQueue *queue);

/*
 * The bit of the privilege with a given name; 0 if there is no such privilege.
 */
static inline FairqPrivilege
fairq_privilege_named(const char *name)
{
	return strcmp(name, "enqueue") == 0 ? FAIRQ_PRIV_ENQUEUE :
		strcmp(name, "work") == 0 ? FAIRQ_PRIV_WORK :
		strcmp(name, "manage") == 0 ? FAIRQ_PRIV_MANAGE :
		strcmp(name, "monitor") == 0 ? FAIRQ_PRIV_MONITOR : 0;
}

/* Whether a group, or its tenant (-1: none), is paused. */
static inline bool
fairq_is_paused(const FairqQueue *queue, int32 group_no, int32 tenant)
{
	return fairq_group_setting(queue, group_no)->limit == 0 ||
		(tenant >= 0 && fairq_tenant_setting(queue, tenant)->limit == 0);
}

/* An interval in microseconds as a double; a month counts as 30 days. */
static inline double
fairq_interval_length(const Interval *interval)
{
	return (double) interval->time +
		((double) interval->month * DAYS_PER_MONTH + interval->day) *
		(double) USECS_PER_DAY;
}

/* Whether no task of the queue starts before some time in the future. */
static inline bool
fairq_queue_is_held(const FairqQueue *queue, TimestampTz now)
{
	return queue->starts.held_until > now;
}

/*
 * The latest possible end of a task's lease, given the time of its pop (0: not
 * popped); DT_NOEND: no limit.
 */
static inline TimestampTz
fairq_last_lease_end(const FairqQueue *queue, TimestampTz popped_at)
{
	return queue->retries.max_run_time == 0 || popped_at == 0 ||
		TIMESTAMP_NOT_FINITE(popped_at) ? DT_NOEND :
		popped_at + queue->retries.max_run_time;
}

/* Whether settings have changed since this backend read them. */
static inline bool
fairq_settings_are_old(const FairqQueue *queue)
{
	return queue->as_of.version !=
		pg_atomic_read_u64(&queue->hints->versions.now);
}

static inline FairqLane *
fairq_queue_lane(FairqQueue *queue, int priority)
{
	return &queue->hints->lanes[priority];
}

#endif							/* FAIRQ_QUEUE_H */
