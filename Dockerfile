# The image of the service: one for edge, console, auth, router and metering, and the command says which (`python -m edge`,
# `python -m services.auth`, …). The bundled model has an image of its own: docker build --target local-model .
#
# Both run as an unprivileged user and write nothing but what is under LEGATO_DATA and /tmp, so that the root file system
# may be mounted read-only. `make image` builds the same bytes from the same commit: RELEASING.md says what that rests on.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
# `legato backup` needs programs of PostgreSQL that are no older than the server: one on the same Debian as the above.
ARG POSTGRES_IMAGE=postgres:17-bookworm

FROM ${PYTHON_IMAGE} AS debian
# A time of Debian's archive, as 20261118T000000Z, as of which the compiler and the like are installed. Empty: today's.
ARG DEBIAN_SNAPSHOT=
RUN [ -z "$DEBIAN_SNAPSHOT" ] || { rm -f /etc/apt/sources.list.d/* && for suite in \
    "debian/$DEBIAN_SNAPSHOT bookworm" "debian/$DEBIAN_SNAPSHOT bookworm-updates" "debian-security/$DEBIAN_SNAPSHOT bookworm-security"; do \
    echo "deb [check-valid-until=no] http://snapshot.debian.org/archive/$suite main"; done > /etc/apt/sources.list; }

# uv stays behind in this stage and in those that are built on it.
FROM debian AS packages
WORKDIR /app
COPY requirements/uv.lock requirements/build.lock requirements/run.lock requirements/local-model.lock requirements/
RUN python -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/uv.lock \
    && python -m venv --without-pip /opt/legato
# Behind a proxy with an authority of its own, that is believed which the base image or the build brings along.
ENV VIRTUAL_ENV=/opt/legato UV_SYSTEM_CERTS=1

# What the service runs on, each file checked by its hash. What is of no use at run time is left out then: the compiler and
# setuptools, which install the service itself, packages' own tests, and what only a debugger reads.
FROM packages AS service-build
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends binutils gcc libc6-dev
RUN /opt/uv/bin/uv pip install --no-cache --require-hashes --no-deps -r requirements/build.lock -r requirements/run.lock
COPY pyproject.toml prices.toml routes.toml ./
COPY legato_protos legato_protos
COPY services services
COPY edge edge
COPY console console
COPY cli cli
COPY deploy/*.py deploy/
RUN /opt/uv/bin/uv pip install --no-cache --no-build-isolation --no-deps -e . \
    && /opt/uv/bin/uv pip uninstall setuptools \
    && find /opt/legato -type d \( -name tests -o -name testing \) -prune -exec rm -rf {} + \
    && find /opt/legato /app -name '*.so' -exec strip --strip-unneeded {} + \
    && /opt/legato/bin/python -c 'import services.router.native' \
    && rm -rf services/router/native_source \
    && rm -rf build requirements ./*.egg-info /opt/legato/lib/python3.11/site-packages/legato-*.dist-info/RECORD \
         /opt/legato/lib/python3.11/site-packages/legato-*.dist-info/uv_cache.json \
    && find /opt/legato /app -name __pycache__ -prune -exec rm -rf {} + \
    && PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 /opt/legato/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/legato/lib /app

FROM packages AS local-model-build
RUN /opt/uv/bin/uv pip install --no-cache --require-hashes --no-deps -r requirements/local-model.lock
COPY services/__init__.py services/
COPY services/chassis services/chassis
COPY services/router/__init__.py services/router/local_model.py services/router/
COPY cli/__init__.py cli/
COPY cli/supervision/__init__.py cli/supervision/health.py cli/supervision/
COPY deploy/serving.py deploy/
RUN rm -rf requirements \
    && find /opt/legato /app -name __pycache__ -prune -exec rm -rf {} + \
    && PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 /opt/legato/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/legato/lib /app

FROM debian AS base
ENV PATH=/opt/legato/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=/app \
    GRPC_EXPERIMENTS=-event_engine_client,-event_engine_listener \
    LEGATO_DATA=/var/lib/legato
# Nothing is installed any more. A named volume takes over the owner of the folder that it is mounted on.
RUN rm -rf /usr/local/lib/python3.11/site-packages/* /usr/local/lib/python3.11/ensurepip /usr/local/bin/pip* \
    && install -d -o 10001 -g 10001 -m 0700 /var/lib/legato /run/legato
WORKDIR /app

FROM base AS local-model
# The model computes with OpenMP. What apt and ldconfig note about the time of their work does not stay.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/ldconfig /var/log/apt /var/log/dpkg.log
COPY --from=local-model-build /opt/legato /opt/legato
COPY --from=local-model-build /app /app
USER 10001:10001
CMD ["python", "-m", "services.router.local_model"]

# Its libraries are for these programs alone.
FROM ${POSTGRES_IMAGE} AS postgres-programs
# hadolint ignore=DL4006
RUN programs=$(dirname "$(readlink -f "$(command -v postgres)")") \
    && mkdir -p /opt/postgresql/bin /opt/postgresql/lib \
    && cp "$programs/pg_dump" "$programs/pg_restore" /opt/postgresql/lib/ \
    && ldd /opt/postgresql/lib/* | awk '$2 == "=>" && $1 !~ /^lib[cm][.]so/ {print $3}' | sort -u | xargs cp -t /opt/postgresql/lib \
    && for name in pg_dump pg_restore; do \
         printf '#!/bin/sh\nLD_LIBRARY_PATH=/opt/postgresql/lib exec /opt/postgresql/lib/%s "$@"\n' $name > /opt/postgresql/bin/$name \
         && chmod 0755 /opt/postgresql/bin/$name; done

FROM base AS service
ENV PATH=/opt/postgresql/bin:$PATH
COPY --from=postgres-programs /opt/postgresql /opt/postgresql
COPY --from=service-build /opt/legato /opt/legato
COPY --from=service-build /app /app
USER 10001:10001
EXPOSE 8080
CMD ["python", "-m", "edge"]
