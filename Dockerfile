# The production program in one image. What a container does is its command: work, schedule,
# mirror, migrate up, ...
#
# Both bases are pinned by version. A tag can still be moved: to pin the content, give
# an image with its digest; docs/operators.md says how.
ARG GO_IMAGE=golang:1.26.8-alpine
ARG BASE_IMAGE=alpine:3.22.1

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/farol-preservation/farol/internal/process/build.version=${VERSION}" -o /farol ./cmd/farol

# Not from scratch: health checks call wget, and S3 needs the certificates.
FROM ${BASE_IMAGE}
RUN apk add --no-cache ca-certificates && adduser -D -H -u 10001 farol
COPY --from=build /farol /usr/local/bin/farol
COPY LICENSE THIRD_PARTY_NOTICES /usr/share/doc/farol/
# On ECS a volume that is mounted here has the rights of this directory.
VOLUME ["/tmp"]
# A number, so that an orchestrator sees that it is not root.
USER 10001
ENTRYPOINT ["farol"]
CMD ["--help"]
