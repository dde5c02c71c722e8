"""The model of a queue with tenants: the order of cost.py, at two levels.

The group t/u is user u of tenant t.  A lane has an order of its tenants, and each
tenant has an order of its users. Each order has its own virtual time and ties.  A
service chooses the first tenant with a user that waits properly, and the first
such user of that tenant.  The tenant and the user are charged the task's cost,
divided by the weight of each.  If fair_by is "tasks", each task costs 1.

A tenant can have a limit of the running tasks of all its users.  A user has a
slot only if its tenant has one.  If a tenant is paused, so are its users.

A tenant becomes active with its first user that has a task.  Tenants that become
active between the same two pops have an order that the model does not know.
"""

from cost import DOUBT, Account, CostModel
from state import NO_LIMIT, Fault


def tenant_of(group):
    return group.split("/")[0]


class TenantsModel(CostModel):
    def _limit_of(self, session, tenant):
        return self.settings_of(session).concurrency_of.get(tenant)

    def _users_counts(self, tenant):
        return [counts for group, counts in self.counts.items()
                if tenant_of(group) == tenant]

    def _tenant_places(self, session, tenant, blind=None):
        limit = self._limit_of(session, tenant)
        if limit is None:
            return NO_LIMIT
        if self.uncounted or self._is_blind(blind):
            return -1
        return limit - sum(counts.most(session)
                           for counts in self._users_counts(tenant))

    def _places(self, session, group, blind=None):
        return min(super()._places(session, group, blind),
                   self._tenant_places(session, tenant_of(group), blind))

    def _keeps_out(self, session, task):
        return super()._keeps_out(session, task) or self._tenant_places(
            session, tenant_of(task.group)) <= 0

    def _may_have_room(self, session, group):
        limit = self._limit_of(session, tenant_of(group))
        return super()._may_have_room(session, group) and (
            limit is None or limit > sum(
                counts.running
                for counts in self._users_counts(tenant_of(group))))

    def _at_most(self, session, visible):
        of = {}
        for group, count in visible.items():
            of.setdefault(tenant_of(group), {})[group] = count
        return sum(
            min(super(TenantsModel, self)._at_most(session, users),
                max(self._tenant_places(session, tenant, False), 0))
            for tenant, users in of.items())

    def _check_limits(self, session, task):
        super()._check_limits(session, task)
        tenant = tenant_of(task.group)
        most = self._limit_of(session, tenant)
        running = (task.leases == 0) + sum(
            counts.running for counts in self._users_counts(tenant))
        if most is not None and running > most:
            raise Fault("limit", f"task {task.id} is running task {running}"
                        f" of tenant {tenant}, of {most} at most")

    def _comes(self, task, order, account):
        super()._comes(task, order, account)
        if self.settings.concurrency_of.get(tenant_of(task.group)):
            account.came = DOUBT

    def _levels(self, task):
        tenant = tenant_of(task.group)
        others = self._others(task)
        lane = self._order(task.lane)
        tenants = sorted({tenant_of(group) for group, _ in others} - {tenant})
        self._have(lane, tenant)
        return [
            (lane, tenant, [(name, self._have(lane, name))
                            for name in tenants]),
            (self._order_of(task.lane, task.group), task.group,
             [(group, account) for group, account in others
              if tenant_of(group) == tenant])]

    @staticmethod
    def _is_among(name, waiting):
        return name in waiting or any(tenant_of(group) == name
                                      for group in waiting)

    def _cost(self, task):
        return (super()._cost(task) if self.settings.fair_by == "cost" else 1)

    def _parts_of(self, task):
        return super()._parts_of(task) if self.settings.fair_by == "cost" else (
            super(CostModel, self)._parts_of(task))

    def _users(self, priority, tenant):
        return [(group, fifo)
                for group, fifo in self.lanes[priority].groups.items()
                if tenant_of(group) == tenant]

    def _is_away(self, name, priority):
        if "/" in name:
            return super()._is_away(name, priority)
        return all(self._has_nothing(*user)
                   for user in self._users(priority, name))

    def _put(self, task):
        lane = self._order(task.lane)
        tenant = self._have(lane, tenant_of(task.group))
        was_away = tenant.away
        user = self._account(task.lane, task.group)
        user_was_away = user.away
        super()._put(task)
        if was_away and not user.away:
            self._comes(task, lane, tenant)
            # a user that the server may still have in the tenant's order
            if not user_was_away or any(
                    self._runs(task.lane, group) for group, _ in
                    self._users(task.lane, tenant_of(task.group))):
                tenant.came = DOUBT

    def _unknown(self, group):
        super()._unknown(group)
        for order in self.orders.values():
            if tenant_of(group) in order.accounts:
                order.accounts[tenant_of(group)] = Account(order.most, False)

    def forget(self):
        super().forget()
        for priority, lane in self.lanes.items():
            order = self._order(priority)
            for group in lane.groups:
                user = self._account(priority, group)
                tenant = order.accounts.setdefault(tenant_of(group), Account())
                tenant.away &= user.away
                tenant.ran |= user.ran
                if not user.away:
                    tenant.came = DOUBT

    def _order_of(self, priority, group):
        return self._order((priority, tenant_of(group)))
