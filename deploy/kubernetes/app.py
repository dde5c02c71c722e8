import logging

import fairq

worker = fairq.Worker("mail", grace=25)


@worker.task("send")
def send(to):
    logging.info("mail to %s", to)
