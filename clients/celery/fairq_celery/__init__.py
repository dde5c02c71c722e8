"""fairq as a broker of Celery: importing this registers fairq:// with kombu."""

from kombu.transport import TRANSPORT_ALIASES

from .progress import set_progress
from .publishing import publishing
from .worker import Retry

__all__ = ["Retry", "publishing", "set_progress"]

TRANSPORT_ALIASES["fairq"] = "fairq_celery.transport:Transport"
