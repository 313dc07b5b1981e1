# Farol in one image. What a container does is its command: work, schedule,
# mirror, migrate up, ...
#
# Both bases are tags, whose content changes as they are patched. To build from a
# certain one, give a digest: docs/operators.md says how.
ARG GO_IMAGE=golang:1.26-alpine
ARG BASE_IMAGE=alpine:3.22

FROM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/farol-preservation/farol/internal/build.version=${VERSION}" -o /farol ./cmd/farol

# Not from scratch: health checks call wget, and S3 needs the certificates.
FROM ${BASE_IMAGE}
RUN apk add --no-cache ca-certificates && adduser -D -H -u 10001 farol
COPY --from=build /farol /usr/local/bin/farol
COPY LICENSE THIRD_PARTY_NOTICES /usr/share/doc/farol/
USER 10001
ENTRYPOINT ["farol"]
CMD ["--help"]
