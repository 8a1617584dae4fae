package seal

// These are from testdata/vectors.py.

var vectors = []struct {
	cipher  Cipher
	channel int
	mode    string
	host    bool
	epoch   int
	number  uint64
	sealed  string
}{
	{"aes-128-gcm", 1, "imm", true, 0, 0,
		"434affa864f935a8421ac6413de920ca5f14fbcc051fe8d073fa8edf9b679e3fd5e67015a3"},
	{"aes-128-gcm", 1, "imm", false, 0, 0,
		"049b067e9f83cb07d4ae97defe5a3613da4a72a1e8fc26761c4b3aa23fb0bd8bd20c63b165"},
	{"aes-128-gcm", 0, "", true, 0, 1,
		"6ecb2fe5e29e7cc9c738984f4ae8274a55d0da3a9e6f4636025dc491d9890a6f786de316a6"},
	{"aes-128-gcm", 255, "send-uc", true, 1, 7,
		"9f6bdb67b21e132b365a3b826249c093740039412dc93a7224bf20678223a5ab6ba9dcf464"},
	{"aes-128-gcm", 2, "indicate", false, 3, 4294967297,
		"dceee675e465ab65f22014c2f470d215de18fbe17289f7151cff4c6c59f28d8b883e1f9e68"},
	{"aes-256-gcm", 1, "imm", true, 0, 0,
		"f88a4b54e81c5495fc45897ef2886dff900ac89ad0b74c76892e91aa8ab7a426345f73774d"},
	{"aes-256-gcm", 1, "imm", false, 0, 0,
		"6fbca5877b1a2419a4a08df5395e89422b80b1fcd56e5ce92317dbf12810e40a9ea79aee92"},
	{"aes-256-gcm", 0, "", true, 0, 1,
		"990ae34170b410cdb8ead95d1087376766275147cd491f663af45ddde336e4b7187fb0a35f"},
	{"aes-256-gcm", 255, "send-uc", true, 1, 7,
		"ada1566f5ec503e93d409b4b57c435ecb42c73b77cc45125b59b4f9b0c37ff07d6748010af"},
	{"aes-256-gcm", 2, "indicate", false, 3, 4294967297,
		"e264d3dd3112f45b10de72d83b7cc7d820d2dd50477bbb49016f6f9d20fa8f0015f3390de3"},
	{"chacha20-poly1305", 1, "imm", true, 0, 0,
		"d0435904782b5561379155afeff9e8ae7ceec7ac0d916cad76732289c6b0d32f17d361f80f"},
	{"chacha20-poly1305", 1, "imm", false, 0, 0,
		"663f4d177527e1dd1d2bb13e77d943addd47e065ea3793186a5f173163ec0bb870887157b7"},
	{"chacha20-poly1305", 0, "", true, 0, 1,
		"ca31303ce9f78d3479f0f0047c2a31ac9e6395e15022e67e1098b3a87b3b25bb8932c74d88"},
	{"chacha20-poly1305", 255, "send-uc", true, 1, 7,
		"0cd7401b8bc26dfd68eede9f34a0a95defecca0d4cc4114b2a3e2da1f5b0c6a7c5e7f5d4fd"},
	{"chacha20-poly1305", 2, "indicate", false, 3, 4294967297,
		"bfa9805656308f876672c3d7af406a7a5c7bcdaabfd1b3a21517c038681edfcab6b1a850ea"},
}
