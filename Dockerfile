# Tailrace with Spark and Java, for `tailrace run` and `tailrace serve`: docs/guides/deployment.md
#
#   docker build --tag tailrace .
#   docker run --read-only --tmpfs /tmp:exec --volume tailrace:/var/lib/tailrace --publish 127.0.0.1:8770:8770 \
#       tailrace serve --listen 0.0.0.0:8770 --plain-http --data-dir /var/lib/tailrace/data
#
# BASE is a Debian with Python 3.11 or newer as `python3`, and its module `venv`. Files of /tmp must be executable:
# Java loads libraries from there.
ARG BASE=python:3.11-slim-bookworm

# ---- the wheel, and an environment with it ----
FROM ${BASE} AS build
ARG EXTRAS=server,delta,iceberg,kafka,postgres
WORKDIR /src
COPY requirements-uv.lock ./
RUN python3 -m venv /uv \
    && /uv/bin/pip install --no-cache-dir --no-deps --only-binary=:all: --require-hashes -r requirements-uv.lock
COPY . .
# Everything in the versions of requirements.lock, by hash, also what only the build needs (a compiler).
RUN python3 -m venv --without-pip /opt/tailrace \
    && /uv/bin/uv --system-certs build --no-cache --wheel --build-constraints requirements.lock --require-hashes --out-dir /dist \
    && wheel="$(echo /dist/*.whl)" \
    && VIRTUAL_ENV=/opt/tailrace /uv/bin/uv --system-certs pip install --no-cache --constraints requirements.lock \
        --compile-bytecode "tailrace[${EXTRAS}] @ file://${wheel}"
# Java compares the jars' times with those in its archive of classes: whole seconds survive an image's layers.
RUN find /opt/tailrace -name '*.jar' -exec touch --date=@1600000000 {} +

# ---- what runs ----
FROM ${BASE}
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 tailrace \
    && useradd --uid 10001 --gid 10001 --home-dir /var/lib/tailrace --create-home --shell /usr/sbin/nologin tailrace \
    && install --directory --owner=10001 --group=10001 --mode=0700 /opt/tailrace-cache
COPY --from=build /opt/tailrace /opt/tailrace
# what pods of executors run: examples/deployment/helm
COPY packaging/image/spark-executor /usr/local/bin/
ENV PATH=/opt/tailrace/bin:$PATH \
    TAILRACE_CACHE=/opt/tailrace-cache \
    PYTHONUNBUFFERED=1
USER 10001:10001
# A start needs no download, and reads Spark's classes from an archive. Nothing is written here later.
RUN tailrace warm && rm -rf /tmp/hsperfdata_tailrace /opt/tailrace-cache/*/cache
WORKDIR /var/lib/tailrace
VOLUME /var/lib/tailrace
EXPOSE 8770
# A server asks its workers to finish their batches, for 60 s at most: stop it with a longer limit.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8770/healthz', timeout=4)"]
ENTRYPOINT ["tini", "--", "tailrace"]
CMD ["serve", "--data-dir", "/var/lib/tailrace/data", "--listen", "0.0.0.0:8770", "--plain-http"]
