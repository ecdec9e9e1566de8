package schemas

import _ "embed"

// OpenAPI is the description of the HTTP API, openapi.yaml. It must not be changed.
//
//go:embed openapi.yaml
var OpenAPI []byte
