"""Metering's database, as far as all slices use it."""

from sqlalchemy import Connection as Connection
