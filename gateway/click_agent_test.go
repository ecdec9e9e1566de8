package gateway

import (
	"fmt"
	"testing"

	"github.com/hoplog/hoplog/schemas/pb"
)

func TestReadClickAgent(t *testing.T) {
	const human, bot, preview, probe = pb.ClickClass_HUMAN, pb.ClickClass_BOT, pb.ClickClass_PREVIEW, pb.ClickClass_PROBE
	for header, want := range map[string]clickAgent{
		redirectTestAgent: {human, "desktop", "Linux", "Chrome"},
		"Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0": {human, "desktop", "Linux", "Chrome"},
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1":            {human, "mobile", "iOS", "Safari"},
		"Mozilla/5.0 (iPad; CPU OS 17_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/138.0.7204.119 Mobile/15E148 Safari/604.1":             {human, "tablet", "iOS", "Chrome"},
		"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Mobile Safari/537.36":                                    {human, "mobile", "Android", "Chrome"},
		"Mozilla/5.0 (Linux; Android 13; CUBOT X50) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Mobile Safari/537.36":                            {human, "mobile", "Android", "Chrome"},
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36 Edg/138.0.0.0":                      {human, "desktop", "Windows", "Edge"},
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0":                                                                   {human, "desktop", "Windows", "Firefox"},
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15":                              {human, "desktop", "macOS", "Safari"},
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36 OPR/122.0.0.0":                      {human, "desktop", "Windows", "Opera"},
		"Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.1; Trident/6.0)":                                                                                   {human, "desktop", "Windows", "Internet Explorer"},
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 Instagram 390.0.0.28.85 (iPhone15,2)": {human, "mobile", "iOS", "Instagram App"},
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Mobile/15E148 [FBAN/FBIOS;FBAV/518.0.0.52.100]":     {human, "mobile", "iOS", "Facebook App"},
		redirectTestBot:        {bot, "", "", "Other"},
		"":                     {class: bot},
		"curl/8.5.0":           {bot, "", "", "Other"},
		"python-requests/2.32": {bot, "", "", "Other"},
		"Go-http-client/1.1":   {bot, "", "", "Other"},
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/138.0.0.0 Safari/537.36": {bot, "desktop", "Linux", "Headless Chrome"},
		"Mozilla/5.0 (compatible; NewThing/1.0)": {bot, "", "", "Other"},
		"Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)": {bot, "", "", "Other"},
		"facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)":                              {preview, "", "", "Other"},
		"Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)":                                             {preview, "", "", "Other"},
		"Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)":                                      {preview, "", "", "Other"},
		"WhatsApp/2.23.20.0":            {preview, "", "", "Other"},
		"TelegramBot (like TwitterBot)": {preview, "", "", "Other"},
		"Mozilla/5.0+(compatible; UptimeRobot/2.0; http://www.uptimerobot.com/)": {probe, "", "", "Other"},
		"kube-probe/1.31":          {probe, "", "", "Other"},
		"ELB-HealthChecker/2.0":    {probe, "", "", "Other"},
		"Blackbox Exporter/0.25.0": {probe, "", "", "Other"},
	} {
		got := readClickAgent(header)
		if got.class != want.class || want.class == human && got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", header, got, want)
		}
		if !known(got.browser, clickBrowsers) || !known(got.os, clickSystems) {
			t.Errorf("%s: %+v", header, got)
		}
	}
}

func known(name, list string) bool { return clickKnown(name, list) == name || name == "Other" }

// However many headers come once, the table does not grow, and what comes often stays.
func TestClickAgentsForget(t *testing.T) {
	agents := newClickAgents()
	often := agents.of([]byte(redirectTestAgent))
	agents.of([]byte(redirectTestAgent)) // the second time moves it to where newcomers do not go
	read := 0
	for i := range 3 << clickAgentBits {
		agents.of(fmt.Appendf(nil, "agent/%d", i))
		if agents.of([]byte(redirectTestAgent)) != often {
			often, read = agents.of([]byte(redirectTestAgent)), read+1
		}
	}
	if read > 0 {
		t.Errorf("the agent of every click was read again %d times", read)
	}
	if often.browser != "Chrome" || often.header != redirectTestAgent {
		t.Errorf("remembers something else: %+v", often)
	}
}
