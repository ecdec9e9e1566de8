package gateway

import (
	"crypto/sha256"
	"hash/maphash"
	"strings"
	"sync/atomic"

	"github.com/mileusna/useragent"

	"github.com/hoplog/hoplog/schemas/pb"
)

// clickAgent is what is kept of a User-Agent header.
type clickAgent struct {
	class   pb.ClickClass
	device  string // desktop, mobile, tablet, or empty
	os      string
	browser string
}

// clickKnownAgent is a User-Agent header and all that a click needs of it.
type clickKnownAgent struct {
	clickAgent
	header  string
	encoded []byte   // the fields device, os and browser of a pb.Click
	digest  [16]byte // first half of the header's SHA-256
}

func newClickKnownAgent(header string) *clickKnownAgent {
	a := &clickKnownAgent{clickAgent: readClickAgent(strings.ToValidUTF8(header, "?")), header: header}
	a.encoded = appendClickString(appendClickString(appendClickString(nil, 12, a.device), 13, a.os), 14, a.browser)
	sum := sha256.Sum256([]byte(header))
	copy(a.digest[:], sum[:])
	return a
}

// clickAgentBits: each of the cache's two tables has that power of two of places.
const clickAgentBits = 12

// clickAgents remembers what User-Agent headers mean: reading one costs microseconds, and most visitors share few. A header
// that is new is put into one table and moves into the other when it comes again, so headers that come once do not push out
// those that come often. Without locks; safe for concurrent use.
type clickAgents struct {
	seed         maphash.Seed
	often, fresh [1 << clickAgentBits]atomic.Pointer[clickKnownAgent]
}

func newClickAgents() *clickAgents { return &clickAgents{seed: maphash.MakeSeed()} }

func (a *clickAgents) of(header []byte) *clickKnownAgent {
	place := maphash.Bytes(a.seed, header) >> (64 - clickAgentBits)
	if agent := a.often[place].Load(); agent != nil && agent.header == string(header) {
		return agent
	}
	if agent := a.fresh[place].Load(); agent != nil && agent.header == string(header) {
		a.often[place].Store(agent)
		return agent
	}
	agent := newClickKnownAgent(string(header))
	a.fresh[place].Store(agent)
	return agent
}

func readClickAgent(header string) clickAgent {
	ua := useragent.Parse(header)
	agent := clickAgent{class: clickClassOf(header, ua.Bot), os: clickKnown(ua.OS, clickSystems), browser: clickKnown(ua.Name, clickBrowsers)}
	switch {
	case ua.Tablet:
		agent.device = "tablet"
	case ua.Mobile:
		agent.device = "mobile"
	case ua.Desktop:
		agent.device = "desktop"
	}
	return agent
}

// clickKnown keeps what visitors can make up out of the reports: a name that is not in the list is "Other".
func clickKnown(name, list string) string {
	if name == "" || strings.Contains(list, "|"+name+"|") {
		return name
	}
	return "Other"
}

const (
	clickSystems  = "|Windows|Windows Phone|Android|macOS|iOS|Linux|FreeBSD|ChromeOS|BlackBerry|Harmony|"
	clickBrowsers = "|Opera|Opera Mini|Opera Touch|Chrome|Headless Chrome|Firefox|Internet Explorer|Safari|Edge|Vivaldi|Mobile Safari|" +
		"Samsung Browser|Facebook App|Instagram App|TikTok App|Pinterest|DuckDuckGo|YaBrowser|UCBrowser|Brave|"
)

// clickClassOf tells people's browsers from programs. listed: the library's own list has it.
func clickClassOf(header string, listed bool) pb.ClickClass {
	lower := strings.ReplaceAll(strings.ToLower(header), "cubot", "") // a maker of phones
	switch {
	case clickHasAny(lower, clickPreviewTokens):
		return pb.ClickClass_PREVIEW
	case clickHasAny(lower, clickProbeTokens):
		return pb.ClickClass_PROBE
	case listed || clickIsProgram(lower):
		return pb.ClickClass_BOT
	}
	return pb.ClickClass_HUMAN
}

// clickIsProgram knows programs by what browsers do not do: they all say Mozilla or Opera first, and none but old ones of
// Microsoft say that they are compatible.
func clickIsProgram(lower string) bool {
	if !strings.HasPrefix(lower, "mozilla/") && !strings.HasPrefix(lower, "opera/") {
		return true
	}
	if strings.Contains(lower, "compatible;") && !strings.Contains(lower, "msie") && !strings.Contains(lower, "konqueror") {
		return true
	}
	return clickHasAny(lower, clickBotTokens)
}

func clickHasAny(text string, tokens []string) bool {
	for _, token := range tokens {
		if strings.Contains(text, token) {
			return true
		}
	}
	return false
}

// The lists are in lower case. Previews: programs that fetch a link because a person posted it in a chat or a feed.
// Probes: monitors and load balancers that look whether the service answers.
var (
	clickPreviewTokens = []string{
		"facebookexternalhit", "facebookcatalog", "meta-externalfetcher", "twitterbot", "linkedinbot", "slackbot", "slack-imgproxy",
		"discordbot", "telegrambot", "whatsapp/", "skypeuripreview", "microsoftpreview", "bingpreview", "google web preview",
		"google-pagerenderer", "pinterestbot", "redditbot", "vkshare", "iframely", "embedly", "snap url preview",
		"cardyb", "mastodon/", "pleroma", "misskey", "summalybot", "kakaotalk-scrap", "line-poker", "synapse (bot", "synapse/",
		"rocket.chat", "mattermost", "zoombot", "xing-contenttabreceiver", "tumblr/", "flipboardproxy", "nuzzel", "bitlybot",
		"link preview", "linkpreview", "url preview", "urlpreview", "unfurl", "opengraph", "ogscraper", "steamchaturllookup",
	}
	clickProbeTokens = []string{
		"uptimerobot", "uptime-kuma", "pingdom", "kube-probe", "elb-healthchecker", "googlehc", "google-cloud-scheduler", "statuscake",
		"site24x7", "datadogsynthetics", "datadog/synthetics", "newrelicsynthetics", "newrelicpinger", "better uptime", "betteruptime",
		"betterstack", "checkly", "zabbix", "check_http", "nagios", "icinga", "blackbox-exporter", "blackbox exporter", "prometheus",
		"consul health check", "hetrixtools", "freshping", "updown.io", "uptimedoctor", "uptimia", "gatus", "monit/", "haproxy",
		"health_check", "healthcheck", "health check", "traffic manager endpoint monitor", "envoy/hc", "thousandeyes", "catchpoint",
		"ghost inspector", "rigor)", "uptime", "monitis", "montools", "synthetics",
	}
	clickBotTokens = []string{
		"bot", "crawl", "spider", "slurp", "http:", "https:", "+http", "www.", "mailto:", "preview", "scrap", "fetch", "monitor", "python",
		"headless", "phantomjs", "electron/", "playwright", "puppeteer", "selenium", "webdriver", "lighthouse", "ptst/", "gtmetrix",
		"scan", "validator", "checker", "survey", "audit", "archive", "curl", "wget", "java)", "httrack", "zgrab", "openvas", "nikto",
		"google-", "google favicon", "googleagent", "googleimageproxy", "-google", "agent)", "-agent", "; agent", "claude-user", "manus-user",
		"chatgpt", "perplexity", "feed", "reader", "collector", "harvest", "extract", "webcapture", "outbrain", "appinsights", "@",
	}
)
