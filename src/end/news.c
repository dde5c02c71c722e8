/*
 * news.c
 *		News: ready tasks of a group that the end of a transaction publishes.
 *
 * The news of a group keep the lowest tasks that become ready, with their
 * TIDs, up to the size of a hand (entry.c).  They also keep the address from
 * which there are more tasks.
 *
 * Locking: lanes' locks, one at a time, while news are published.  Publication
 * neither fails nor allocates.
 */
#include "postgres.h"

#include "grow.h"
#include "news.h"

/* no node */
#define NO_INDEX (-1)

/*
 * A task in a list of news.  Nodes are allocated when a change is recorded,
 * and given back when it is applied.
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
		nodes = fairq_grow(TopTransactionContext, nodes, &maxnodes, 64,
						   sizeof(ItemNode));
	return nnodes++;
}

static void
release_node(int32 node)
{
	nodes[node].next = free_node;
	free_node = node;
}

/*
 * Put a node into the list.  If the list is then too long, drop its last node.
 */
static void
put_node(FairqNews *news, int32 node)
{
	int32	   *at = &news->items;
	int32		last;
	int			n = 1;

	while (*at != NO_INDEX && nodes[*at].item.addr <= nodes[node].item.addr)
	{
		at = &nodes[*at].next;
		n++;
	}
	nodes[node].next = *at;
	*at = node;
	while (nodes[*at].next != NO_INDEX)
	{
		at = &nodes[*at].next;
		n++;
	}
	if (n <= FAIRQ_HAND)
		return;
	last = *at;
	fairq_news_add_more(news, nodes[last].item.addr);
	release_node(last);
	*at = NO_INDEX;
}

/* Add a ready task.  Only the lowest ones are kept individually. */
void
fairq_news_add_item(FairqNews *news, const FairqItem *item)
{
	int32		node = new_node();

	nodes[node].item = *item;
	put_node(news, node);
}

/* The timed tasks of the news; empty, if there are none. */
static FairqLater *
later_of(FairqNews *news)
{
	FairqLater *later;

	if (news->later != NULL)
		return news->later;
	later = MemoryContextAlloc(TopTransactionContext, sizeof(FairqLater));
	for (int r = 0; r < FAIRQ_REGIONS; r++)
		later->scheduled[r] = FAIRQ_ADDR_MAX;
	fairq_leases_init(&later->leased);
	news->later = later;
	return later;
}

/* Add a timed task. */
void
fairq_news_add_timed(FairqNews *news, int64 addr)
{
	int64	   *first = &later_of(news)->scheduled[fairq_region(addr)];

	*first = Min(*first, addr);
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

/* Add leases of tasks. */
void
fairq_news_add_leases(FairqNews *news, const FairqLeases *leases)
{
	add_leases(&later_of(news)->leased, leases);
}

/* Initialize unused news. */
void
fairq_news_init(FairqNews *news)
{
	news->items = NO_INDEX;
	news->nready = 0;
	news->more = FAIRQ_ADDR_MAX;
	news->since = DT_NOEND;
	news->later = NULL;
}

/* Give back the memory of the news. */
void
fairq_news_release(FairqNews *news)
{
	while (news->items != NO_INDEX)
	{
		int32		node = news->items;

		news->items = nodes[node].next;
		release_node(node);
	}
	if (news->later != NULL)
		pfree(news->later);
	news->later = NULL;
}

/*
 * Add other news of the same group, which this consumes.  Allocates nothing.
 */
void
fairq_news_merge(FairqNews *news, FairqNews *more)
{
	while (more->items != NO_INDEX)
	{
		int32		node = more->items;

		more->items = nodes[node].next;
		put_node(news, node);
	}
	fairq_news_add_more(news, more->more);
	fairq_news_since(news, more->since);
	news->nready += more->nready;
	if (news->later == NULL)
	{
		news->later = more->later;
		more->later = NULL;
	}
	else if (more->later != NULL)
	{
		for (int r = 0; r < FAIRQ_REGIONS; r++)
			news->later->scheduled[r] = Min(news->later->scheduled[r],
											more->later->scheduled[r]);
		add_leases(&news->later->leased, &more->later->leased);
	}
	fairq_news_release(more);
}

/* Publish timed tasks.  again: they may be due by now. */
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

/* Publish timed tasks and leases, which make tasks ready as time passes. */
static void
publish_later(FairqLane *lane, int32 group_no, const FairqLater *later,
			  bool again)
{
	for (int r = FAIRQ_REGION_RETRIED; r < FAIRQ_REGIONS; r++)
		publish_scheduled(lane, group_no, later->scheduled[r], again);
	if (later->leased.until == DT_NOEND)
		return;
	fairq_lane_add_leases(lane, group_no, &later->leased);
	fairq_wake_in_time(&fairq_hints_of(lane)->wakeup, later->leased.until);
}

/* Publish the news of a group.  again: its tasks were ready before. */
void
fairq_news_publish(FairqLane *lane, int32 group_no, const FairqNews *news,
				   bool again)
{
	FairqItem	items[FAIRQ_HAND];
	int			n = 0;

	if (news->later != NULL)
		publish_later(lane, group_no, news->later, again);
	for (int32 at = news->items; at != NO_INDEX; at = nodes[at].next)
		items[n++] = nodes[at].item;
	if (n > 0 || news->more != FAIRQ_ADDR_MAX)
		fairq_lane_add_ready(lane, group_no, items, n, news->more,
							 news->since);
}

/* Forget all lists, whose memory is freed with the transaction. */
void
fairq_news_forget(void)
{
	nodes = NULL;
	nnodes = maxnodes = 0;
	free_node = NO_INDEX;
}
