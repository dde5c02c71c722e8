"""fairq as a broker of Celery: importing this registers fairq:// with kombu."""

from kombu.transport import TRANSPORT_ALIASES

from .publishing import publishing

__all__ = ["Retry", "publishing"]

TRANSPORT_ALIASES["fairq"] = "fairq_celery.transport:Transport"

try:
    from .worker import Retry
except ImportError:         # kombu without Celery
    __all__.remove("Retry")
