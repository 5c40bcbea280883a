# One image for every process of Legato; the command says which: `python -m edge`, `python -m services.auth`, …
#
# It runs as an unprivileged user and writes nothing but what is under LEGATO_DATA and /tmp, so that the root file system
# may be mounted read-only.
FROM python:3.11-slim-bookworm AS build

WORKDIR /app
COPY requirements/uv.lock requirements/run.lock requirements/
# uv stays behind in this stage; what the service runs on goes into the environment, each file checked by its hash.
RUN python -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/uv.lock \
    && python -m venv --without-pip /opt/legato \
    && /opt/uv/bin/uv pip install --python /opt/legato --no-cache --compile-bytecode --require-hashes --no-deps \
        -r requirements/run.lock

COPY pyproject.toml prices.toml routes.toml ./
COPY protos protos
COPY services services
COPY edge edge
COPY cli cli
COPY deploy/serving.py deploy/
RUN /opt/uv/bin/uv pip install --python /opt/legato --no-cache --no-build-isolation --no-deps -e . \
    && /opt/legato/bin/python -m compileall -q /app

FROM python:3.11-slim-bookworm

ENV PATH=/opt/legato/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    LEGATO_DATA=/var/lib/legato

# The bundled model computes with OpenMP.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
# A named volume takes over the owner of the folder that it is mounted on.
RUN install -d -o 10001 -g 10001 -m 0700 /var/lib/legato /run/legato
COPY --from=build /opt/legato /opt/legato
COPY --from=build /app /app

WORKDIR /app
USER 10001:10001
EXPOSE 8080
CMD ["python", "-m", "edge"]
