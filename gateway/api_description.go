package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	"go.yaml.in/yaml/v3"

	"github.com/hoplog/hoplog/schemas"
)

// description is schemas/openapi.yaml as the server uses it itself: what it serves, and what the router cannot know.
type description struct {
	json []byte
	// public are the routes that need no key.
	public map[string]bool
	// query are the names of an operation's query parameters, by method and route.
	query map[string][]string
}

// openAPI is the part of an OpenAPI document that description reads.
type openAPI struct {
	Paths      map[string]openAPIPath `yaml:"paths"`
	Components struct {
		Parameters map[string]openAPIParameter `yaml:"parameters"`
	} `yaml:"components"`
}

type openAPIPath struct {
	Parameters []openAPIParameter `yaml:"parameters"`
	Get        *openAPIOperation  `yaml:"get"`
	Post       *openAPIOperation  `yaml:"post"`
	Patch      *openAPIOperation  `yaml:"patch"`
	Delete     *openAPIOperation  `yaml:"delete"`
}

type openAPIOperation struct {
	Parameters []openAPIParameter `yaml:"parameters"`
	Security   *[]any             `yaml:"security"`
}

type openAPIParameter struct {
	Ref  string `yaml:"$ref"`
	Name string `yaml:"name"`
	In   string `yaml:"in"`
}

// theDescription is read once: it is part of the binary.
var theDescription = sync.OnceValues(readDescription)

func readDescription() (*description, error) {
	var document any
	var api openAPI
	for _, into := range []any{&document, &api} {
		if err := yaml.Unmarshal(schemas.OpenAPI, into); err != nil {
			return nil, fmt.Errorf("reading the API description: %w", err)
		}
	}
	d := &description{public: map[string]bool{"/": true}, query: map[string][]string{}}
	var err error
	if d.json, err = json.Marshal(document); err != nil {
		return nil, fmt.Errorf("turning the API description into JSON: %w", err)
	}
	for path, item := range api.Paths {
		route := routeOf(path)
		for method, operation := range map[string]*openAPIOperation{
			http.MethodGet: item.Get, http.MethodHead: item.Get, http.MethodPost: item.Post, http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
		} {
			if operation == nil {
				continue
			}
			if operation.Security != nil && len(*operation.Security) == 0 {
				d.public[route] = true
			}
			d.query[method+" "+route] = api.queryNames(append(item.Parameters, operation.Parameters...))
		}
	}
	return d, nil
}

func (api *openAPI) queryNames(list []openAPIParameter) (names []string) {
	for _, p := range list {
		if name, isRef := strings.CutPrefix(p.Ref, "#/components/parameters/"); isRef {
			p = api.Components.Parameters[name]
		}
		if p.In == "query" {
			names = append(names, p.Name)
		}
	}
	return names
}

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// routeOf returns the router's form of a path.
func routeOf(path string) string { return pathParameter.ReplaceAllString(path, ":$1") }

// GetOpenAPIYAML answers GET /v1/openapi.yaml.
func (a *api) GetOpenAPIYAML(c *gin.Context) {
	writeBytes(c, http.StatusOK, "application/yaml", schemas.OpenAPI)
}

// GetOpenAPIJSON answers GET /v1/openapi.json.
func (a *api) GetOpenAPIJSON(c *gin.Context) {
	writeBytes(c, http.StatusOK, "application/json", a.description.json)
}
