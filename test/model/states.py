"""All states that a model can reach, each once."""

from collections import deque


class Fault(Exception):
    """Raised when a state or a step breaks a promise."""


class Explorer:
    """A model has a hashable start state. It has steps(state), which yields all
    possible next steps: (name, next state). It has check(state), which raises
    Fault, as steps may.
    """

    def explore(self, most=None):
        """Returns None, or (a fault, the steps that lead to it). Searches
        breadth first, and visits at most this number of states.
        """
        came = {self.start: None}
        todo = deque([self.start])
        while todo and (most is None or len(came) < most):
            state = todo.popleft()
            try:
                self.check(state)
                for name, after in self.steps(state):
                    if after not in came:
                        came[after] = (state, name)
                        todo.append(after)
            except Fault as fault:
                return str(fault), self._trace(came, state)
        self.states = len(came)
        return None

    @staticmethod
    def _trace(came, state):
        names = []
        while came[state] is not None:
            state, name = came[state]
            names.append(name)
        return names[::-1]
