package gateway

import "net/http"

// redirectSays is what the page of a status says, in the order of the languages. None says more of a link than its status does.
var redirectSays = map[int]redirectTexts{
	http.StatusBadRequest: {
		{"Bad request", "This is not a request that a browser sends."},
		{"请求无效", "这不是浏览器会发送的请求。"}},
	http.StatusForbidden: {
		{"Link blocked", "This link was blocked."},
		{"链接已被屏蔽", "此链接已被屏蔽。"}},
	http.StatusNotFound: {
		{"Not found", "There is no link at this address. Is all of it there, as it was given to you?"},
		{"找不到链接", "此地址没有链接。请检查地址是否完整无误。"}},
	http.StatusMethodNotAllowed: {
		{"Method not allowed", "Links can be visited, nothing else."},
		{"不支持此方法", "链接只能访问，不支持其他操作。"}},
	http.StatusRequestTimeout: {
		{"Too slow", "The request took too long to arrive."},
		{"请求超时", "请求未能及时到达。"}},
	http.StatusGone: {
		{"Link gone", "This link is no longer in use."},
		{"链接已失效", "此链接已不再使用。"}},
	http.StatusRequestEntityTooLarge: {
		{"Too large", "Nothing here takes a body."},
		{"请求过大", "此处不接受请求正文。"}},
	http.StatusRequestHeaderFieldsTooLarge: {
		{"Too large", "The request's headers are too large."},
		{"请求过大", "请求标头过大。"}},
	http.StatusUnavailableForLegalReasons: {
		{"Unavailable for legal reasons", "This link was blocked for legal reasons."},
		{"因法律原因无法访问", "此链接因法律原因已被屏蔽。"}},
	http.StatusInternalServerError: {
		{"Something went wrong", "The mistake is ours. Please try again."},
		{"出错了", "问题在我们这边，请重试。"}},
	http.StatusServiceUnavailable: {
		{"Not available now", "Please try again in a moment."},
		{"暂时无法访问", "请稍后再试。"}},
}

// What pages say that share their status with others.
var (
	redirectSaysExpired = redirectTexts{
		{"Link expired", "This link was valid for a limited time, which is over."},
		{"链接已过期", "此链接的有效期已过。"}}
	redirectSaysDisabled = redirectTexts{
		{"Link disabled", "This link is switched off."},
		{"链接已停用", "此链接已被停用。"}}
	redirectSaysGuessed = redirectTexts{
		{"Too many requests", "Too many links that do not exist were asked for from here. Please try again later."},
		{"请求过多", "来自此处的请求访问了过多不存在的链接，请稍后再试。"}}
	redirectSaysClosed = redirectTexts{
		{"Links paused", "Links like this one are paused for now. Please try again later."},
		{"链接已暂停", "此类链接目前暂停访问，请稍后再试。"}}
	redirectSaysStale = redirectTexts{
		{"Not available now", "Whether this link is safe cannot be checked at the moment. Please try again in a few seconds."},
		{"暂时无法访问", "目前无法确认此链接是否安全，请几秒后再试。"}}
)

// redirectPreviewText are the words of a preview; leads is followed by the target's host, until by a time.
type redirectPreviewText struct{ title, leads, goes, whole, until, layout string }

var redirectPreviewSays = [redirectLanguages]redirectPreviewText{
	{"Preview of", "This short link leads to", "Continue to this site", "The whole address:", "The link is valid until", "2 January 2006, 15:04:05 UTC"},
	{"链接预览：", "此短链接将前往", "继续访问", "完整地址：", "此链接的有效期至", "2006年1月2日 15:04:05（UTC）"},
}
