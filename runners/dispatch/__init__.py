"""Dispatch jobs to the machine that evaluates them."""

from runners.dispatch.base import Dispatcher
from runners.dispatch.celery import CeleryDispatcher
from runners.dispatch.kernelbot import KernelBotDispatcher
from runners.dispatch.spool import SpoolDispatcher

# A new dispatcher is one module and one entry here.
DISPATCHERS: dict[str, Dispatcher] = {
    dispatcher.name: dispatcher for dispatcher in (CeleryDispatcher(), SpoolDispatcher(), KernelBotDispatcher())
}
