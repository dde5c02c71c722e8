/*
 * news.c
 *		What is published of a group when a transaction ends.
 *
 * Of the tasks that become ready the news of a group keep the lowest, with
 * the TIDs of their rows, as many as a hand holds (hand.c), and the address
 * from which on there are more.
 *
 * Locking: lanes' locks, one at a time, while news are published.  That neither
 * fails nor allocates.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "news.h"

/* no node */
#define NO_INDEX (-1)

/*
 * A task that news are of, in a list.  Nodes are allocated when a change is
 * noted, and given back when it is applied.
 */
typedef struct ItemNode
{
	FairqItem	item;
	int32		next;			/* NO_INDEX: none */
} ItemNode;

static ItemNode *nodes = NULL;	/* in TopTransactionContext */
static int32 nnodes = 0;
static int32 maxnodes = 0;
static int32 free_node = NO_INDEX;

static int32
new_node(void)
{
	int32		node = free_node;

	if (node != NO_INDEX)
	{
		free_node = nodes[node].next;
		return node;
	}
	if (nnodes == maxnodes)
	{
		int32		n = maxnodes == 0 ? 64 : maxnodes * 2;

		nodes = nodes == NULL ?
			MemoryContextAllocHuge(TopTransactionContext, sizeof(ItemNode) * n) :
			repalloc_huge(nodes, sizeof(ItemNode) * n);
		maxnodes = n;
	}
	return nnodes++;
}

static void
release_node(int32 node)
{
	nodes[node].next = free_node;
	free_node = node;
}

/* Note that a ready task of the news became ready at that time. */
void
fairq_news_since(FairqNews *news, TimestampTz since)
{
	news->since = Min(news->since, since);
}

/* Add ready tasks, an unknown number, from that address on. */
void
fairq_news_add_more(FairqNews *news, int64 addr)
{
	news->more = Min(news->more, addr);
}

/* Add a ready task.  Only the lowest ones are kept one by one. */
void
fairq_news_add_item(FairqNews *news, const FairqItem *item)
{
	int32	   *at = &news->items;
	int32		node = new_node();

	while (*at != NO_INDEX && nodes[*at].item.addr <= item->addr)
		at = &nodes[*at].next;
	nodes[node].item = *item;
	nodes[node].next = *at;
	*at = node;
	if (news->nitems < FAIRQ_HAND)
	{
		news->nitems++;
		return;
	}
	at = &news->items;
	while (nodes[*at].next != NO_INDEX)
		at = &nodes[*at].next;
	fairq_news_add_more(news, nodes[*at].item.addr);
	release_node(*at);
	*at = NO_INDEX;
}

static void
init_leases(FairqLeases *leases)
{
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		leases->low[r] = FAIRQ_ADDR_MAX;
		leases->high[r] = FAIRQ_ADDR_NONE;
	}
	leases->until = DT_NOEND;
	leases->searches = PG_UINT64_MAX;
}

/* Make the news empty, which were not used so far. */
void
fairq_news_init(FairqNews *news)
{
	news->items = NO_INDEX;
	news->nitems = 0;
	news->more = FAIRQ_ADDR_MAX;
	news->since = DT_NOEND;
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		news->scheduled[r] = FAIRQ_ADDR_MAX;
	init_leases(&news->leased);
}

/* Empty the news. */
void
fairq_news_release(FairqNews *news)
{
	while (news->items != NO_INDEX)
	{
		int32		node = news->items;

		news->items = nodes[node].next;
		release_node(node);
	}
	fairq_news_init(news);
}

static bool
has_ready_news(const FairqNews *news)
{
	return news->nitems > 0 || news->more != FAIRQ_ADDR_MAX;
}

/* Are there tasks in the news? */
bool
fairq_news_has_tasks(const FairqNews *news)
{
	bool		any = has_ready_news(news);

	for (int r = 0; r < FAIRQ_REGIONS; r++)
		any |= news->scheduled[r] != FAIRQ_ADDR_MAX;
	return any;
}

/* Are the news empty? */
bool
fairq_news_is_none(const FairqNews *news)
{
	return !fairq_news_has_tasks(news) && news->leased.until == DT_NOEND;
}

static void
add_leases(FairqLeases *leases, const FairqLeases *more)
{
	for (int r = 0; r < FAIRQ_REGIONS; r++)
	{
		leases->low[r] = Min(leases->low[r], more->low[r]);
		leases->high[r] = Max(leases->high[r], more->high[r]);
	}
	leases->until = Min(leases->until, more->until);
	leases->searches = Min(leases->searches, more->searches);
}

/* Add to the news of a whole lane, in which single tasks do not matter. */
void
fairq_news_add_lane(FairqNews *news, const FairqNews *more)
{
	fairq_news_add_more(news, more->more);
	fairq_news_since(news, more->since);
	if (more->nitems > 0)
		fairq_news_add_more(news, 0);
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		news->scheduled[r] = Min(news->scheduled[r], more->scheduled[r]);
	add_leases(&news->leased, &more->leased);
}

/* Publish timed tasks; with again, they may have fallen due by now. */
static void
publish_scheduled(FairqLane *lane, int32 group_no, int64 addr, bool again)
{
	if (addr == FAIRQ_ADDR_MAX)
		return;
	if (again)
		fairq_lane_add_timed(lane, group_no, addr);
	else
		fairq_lane_add_scheduled(lane, addr);
	fairq_wake_in_time(&fairq_hints_of(lane)->wakeup,
					   fairq_due_time(addr));
}

/*
 * Forget a lane: all of it is to be read off the table again, and its leases
 * by another load.
 */
static void
forget_lane(FairqLane *lane)
{
	fairq_lane_forget(lane);
	pg_atomic_fetch_add_u64(&fairq_domain_at(lane->domain)->forgets, 1);
}

/*
 * Publish the news of a group, or of a lane (-1); with again, of tasks that were
 * ready before.
 */
void
fairq_news_publish(FairqLane *lane, int32 group_no, const FairqNews *news,
				   bool again)
{
	if (fairq_news_is_none(news))
		return;
	if (group_no < 0 && (again || has_ready_news(news)))
	{
		/* whose these are is not known: all is read again */
		forget_lane(lane);
		fairq_wake_all(&fairq_hints_of(lane)->wakeup);
		return;
	}
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		publish_scheduled(lane, group_no, news->scheduled[r], again);
	if (has_ready_news(news))
	{
		FairqItem	items[FAIRQ_HAND];
		int			n = 0;

		for (int32 at = news->items; at != NO_INDEX; at = nodes[at].next)
			items[n++] = nodes[at].item;
		fairq_lane_add_ready(lane, group_no, items, n, news->more,
							 news->since);
	}
	if (news->leased.until != DT_NOEND)
	{
		if (group_no < 0)
			forget_lane(lane);
		else
			fairq_lane_add_leases(lane, group_no, &news->leased);
		fairq_wake_in_time(&fairq_hints_of(lane)->wakeup,
						   news->leased.until);
	}
}

/* Forget all lists, whose memory goes with the transaction. */
void
fairq_news_forget(void)
{
	nodes = NULL;
	nnodes = maxnodes = 0;
	free_node = NO_INDEX;
}
