# syntax=docker/dockerfile:1
# Two images: `docker build .` gives the slim one, `docker build --target reports .` the one with Java and Spark.
#   docker run -p 9876:9876 -p 10911:10911 -p 8080:8080 -v data:/data IMAGE
# Works with --read-only: everything written lies in /data, and a little in /tmp (--tmpfs /tmp).

FROM python:3.11-slim AS build
# Compiles the hot path; Python's headers are in the image. The other stages get what came of it, not the compiler.
RUN apt-get update \
 && apt-get install -y --no-install-recommends gcc libc6-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY requirements/ requirements/
RUN python -m venv /opt/rocketbox \
 && /opt/rocketbox/bin/python -m pip install --no-cache-dir --require-hashes --no-deps -r requirements/console.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY appliance/ appliance/
COPY spark_reports/ spark_reports/
COPY pyspark_rocketbox/ pyspark_rocketbox/
COPY templates/ templates/
COPY static/ static/
RUN ROCKETBOX_COMPILED=required \
    /opt/rocketbox/bin/python -m pip install --no-cache-dir --no-deps --no-build-isolation .
RUN /opt/rocketbox/bin/python -m pip uninstall -y cython

FROM python:3.11-slim AS slim
LABEL org.opencontainers.image.title="RocketBox" \
      org.opencontainers.image.description="A RocketMQ-compatible broker, name server and console in one process" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 10001 rocketbox \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin rocketbox \
 && install -d -o rocketbox -g rocketbox -m 0750 /data
COPY --from=build /opt/rocketbox /opt/rocketbox
ENV PATH=/opt/rocketbox/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ROCKETBOX_DATA_DIR=/data \
    ROCKETBOX_BIND=0.0.0.0
USER rocketbox
WORKDIR /data
VOLUME /data
EXPOSE 9876 10909 10911 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["rocketbox", "health"]
ENTRYPOINT ["rocketbox"]
CMD ["serve"]

FROM slim AS reports
USER root
COPY requirements/ /opt/rocketbox/requirements/
# Java 17 or newer, whichever the image's Debian has. PySpark comes as sources and is built with the locked setuptools.
RUN apt-get update \
 && apt-get install -y --no-install-recommends default-jre-headless \
 && rm -rf /var/lib/apt/lists/*
RUN /opt/rocketbox/bin/python -m pip install --no-cache-dir --require-hashes --no-deps --no-build-isolation \
        -r /opt/rocketbox/requirements/reports.txt \
 && /opt/rocketbox/bin/python -m pip uninstall -y cython
ENV PYSPARK_PYTHON=/opt/rocketbox/bin/python
USER rocketbox

# The last stage is what `docker build .` makes.
FROM slim
