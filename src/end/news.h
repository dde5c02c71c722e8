/*
 * news.h
 *		The tasks and leases of a group that the end of a transaction
 *		publishes.
 */
#ifndef FAIRQ_NEWS_H
#define FAIRQ_NEWS_H

#include "lane.h"

/* Tasks of a group that become ready as time passes. */
typedef struct FairqLater
{
	int64		scheduled[FAIRQ_REGIONS];	/* lowest address of timed tasks,
											 * per region; FAIRQ_ADDR_MAX:
											 * none */
	FairqLeases leased;			/* leases of tasks */
} FairqLater;

/* The tasks of a group that a commit or an abort publishes. */
typedef struct FairqNews
{
	int32		items;			/* index of the first of the lowest ready
								 * tasks, a list of nodes; -1: none */
	int32		nready;			/* number of tasks that need waiters */
	int64		more;			/* lowest address of other ready tasks;
								 * FAIRQ_ADDR_MAX: none */
	TimestampTz since;			/* time at which the first of all these became
								 * ready; DT_NOEND: there are none */
	FairqLater *later;			/* timed and leased tasks; NULL: none */
} FairqNews;

/* Record the time at which a task of the news became ready. */
static inline void
fairq_news_since(FairqNews *news, TimestampTz since)
{
	news->since = Min(news->since, since);
}

/* Add an unknown number of ready tasks from an address on. */
static inline void
fairq_news_add_more(FairqNews *news, int64 addr)
{
	news->more = Min(news->more, addr);
}

extern void fairq_news_init(FairqNews *news);
extern void fairq_news_release(FairqNews *news);
extern void fairq_news_forget(void);
extern void fairq_news_add_item(FairqNews *news, const FairqItem *item);
extern void fairq_news_add_timed(FairqNews *news, int64 addr);
extern void fairq_news_add_leases(FairqNews *news, const FairqLeases *leases);
extern void fairq_news_merge(FairqNews *news, FairqNews *more);
extern void fairq_news_publish(FairqLane *lane, int32 group_no,
							   const FairqNews *news, bool again);

#endif							/* FAIRQ_NEWS_H */
