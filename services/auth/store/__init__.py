from sqlalchemy import Connection as Connection
