-- purpose: what may be a lane's name; checked before an item's first write.
-- defines: lane_fits
local function lane_fits(lane)
  return #lane <= 128 and not string.find(lane, '[%c{}]') --!guard lane-fits
end
