"""fairq as a broker of Celery: importing this registers fairq:// with kombu."""

from kombu.transport import TRANSPORT_ALIASES

__version__ = "1.0.0"       # these modules use it

from .progress import set_progress, step        # noqa: E402
from .publishing import batch, publishing       # noqa: E402
from .worker import Retry                       # noqa: E402

__all__ = ["Retry", "batch", "publishing", "set_progress", "step"]

TRANSPORT_ALIASES["fairq"] = "fairq_celery.transport:Transport"
