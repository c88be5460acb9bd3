-- purpose: the server's clock in ms, read once a script (Redis 7 does not freeze TIME inside a script).
-- defines: NOW
local NOW
do
  local t = call('TIME')
  NOW = t[1] * 1000 + math.floor(t[2] / 1000)
end
